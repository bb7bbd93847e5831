//! A model of the whole protocol: texts that are told late, looks that read one thing after the other, leases that are
//! lost, waits that are given up. Each report is judged by the true state between its two looks.

use super::{
    tests::{hold, id, wait},
    *,
};
use fastrand::Rng;

const CALLERS: usize = 5;
const STEPS: u64 = 400;

/// The size of each key, and the permits that a wait may ask for there: locks, and a read/write lock.
const KEYS: [(&str, u64, &[u64]); 5] =
    [("a", 1, &[1]), ("b", 1, &[1]), ("c", 1, &[1]), ("d", 1, &[1]), ("rw", 9, &[1, 1, 9])];

/// A rule of the protocol that is broken on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// The first look is believed.
    SecondLook,
    /// An attempt is believed to wait because a text says so.
    QueuesAreRead,
}

/// One who acquires, waits, gives up and releases at random.
#[derive(Default)]
struct Caller {
    wait: Option<Wait>,
    /// What it believes to hold.
    held: Vec<Around>,
    /// What the store knows of its waits.
    text: Option<Wait>,
    /// A text on its way, and when it arrives.
    telling: Option<(Option<Wait>, u64)>,
    tells_at: u64,
    look: Option<Look>,
}

/// A detection under way. Each step reads one text or one queue.
struct Look {
    of: Id,
    /// The callers whose texts are to be read.
    todo: Vec<usize>,
    read: HashSet<usize>,
    seen: Picture,
    /// What the first look has found, and the true state when it ended.
    first: Option<(Picture, Picture)>,
    again: Vec<Key>,
    later: HashMap<Key, Queue>,
}

impl Look {
    fn by(caller: usize, of: Id) -> Self {
        let (todo, read, seen) = (vec![caller], HashSet::new(), Picture::default());
        Self { of, todo, read, seen, first: None, again: Vec::new(), later: HashMap::new() }
    }
}

struct World {
    random: Rng,
    broken: Broken,
    now: u64,
    fence: u64,
    attempts: u64,
    queues: HashMap<Key, Queue>,
    callers: Vec<Caller>,
    reports: usize,
    false_reports: usize,
}

impl World {
    fn new(seed: u64, broken: Broken) -> Self {
        let mut random = Rng::with_seed(seed);
        let queue = |(key, size, _): (&str, u64, _)| (Key::new(key), Queue { size, ..Queue::default() });
        let caller = |random: &mut Rng| Caller { tells_at: random.u64(0..10), ..Caller::default() };
        let callers = (0..CALLERS).map(|_| caller(&mut random)).collect();
        let queues = KEYS.map(queue).into();
        let (now, fence, attempts, reports, false_reports) = (0, 0, 0, 0, 0);
        Self { random, broken, now, fence, attempts, queues, callers, reports, false_reports }
    }

    fn step(&mut self) {
        self.now += 1;
        let mut order: Vec<usize> = (0..CALLERS).collect();
        self.random.shuffle(&mut order);
        for caller in order {
            self.act(caller);
            self.lose_a_lease(caller);
            self.tell(caller);
            self.detect(caller);
        }
    }

    fn act(&mut self, caller: usize) {
        let at = self.random.f64();
        match &self.callers[caller].wait {
            Some(_) if at < 0.004 => {
                let wait = self.callers[caller].wait.take().unwrap();
                self.change(&wait.key, |queue| queue.waiters.retain(|id| *id != wait.id));
            }
            None if at < 0.35 => self.ask(caller),
            None if at < 0.6 => {
                if let Some(hold) = self.callers[caller].held.pop() {
                    self.end(&hold);
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, caller: usize) {
        let (key, _, permits) = self.random.choice(KEYS).unwrap();
        let (key, permits) = (Key::new(key), *self.random.choice(permits).unwrap());
        let around = self.callers[caller].held.clone();
        if around.iter().any(|hold| hold.key == key) {
            return;
        }
        self.attempts += 1;
        let number = self.attempts << 8 | caller as u64;
        self.callers[caller].wait = Some(Wait { around, ..wait(number, key.as_str(), permits, &[]) });
        self.change(&key, |queue| queue.waiters.push(id(number)));
    }

    /// Ends a hold, unless it was lost before.
    fn end(&mut self, hold: &Around) {
        self.change(&hold.key, |queue| queue.holders.retain(|held| held.0 != hold.fence));
    }

    /// Changes a queue, and serves its waiters.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Queue)) {
        let queue = self.queues.get_mut(key).unwrap();
        change(queue);
        while let Some(first) = queue.waiters.first().copied() {
            let caller = &mut self.callers[usize::try_from(u128::from(first) & 0xff).unwrap()];
            let permits = caller.wait.as_ref().unwrap().permits;
            if queue.holders.iter().map(|held| held.2).sum::<u64>() + permits > queue.size {
                return;
            }
            self.fence += 1;
            let granted = hold(key.as_str(), self.fence);
            queue.holders.push((granted.fence, granted.tag, permits));
            queue.waiters.remove(0);
            caller.wait = None;
            caller.held.push(granted);
        }
    }

    fn lose_a_lease(&mut self, caller: usize) {
        if self.random.f64() < 0.002
            && let Some(hold) = self.random.choice(self.callers[caller].held.clone())
        {
            self.end(&hold);
        }
    }

    /// A text is made at one time, and arrives later. The next one is made after that.
    fn tell(&mut self, caller: usize) {
        let (now, delay) = (self.now, self.random.u64(1..17));
        let caller = &mut self.callers[caller];
        match caller.telling.take() {
            Some((text, arrives)) if arrives <= now => (caller.text, caller.tells_at) = (text, now + 10),
            None if caller.tells_at <= now => caller.telling = Some((caller.wait.clone(), now + delay)),
            telling => caller.telling = telling,
        }
    }

    fn detect(&mut self, caller: usize) {
        let starts = self.random.f64() < 0.1;
        let Caller { wait, look, .. } = &mut self.callers[caller];
        let next = look.take().or_else(|| {
            wait.as_ref()
                .filter(|wait| starts && !wait.around.is_empty())
                .map(|wait| Look::by(caller, wait.id))
        });
        self.callers[caller].look = next.and_then(|look| self.look_on(look));
    }

    /// Reads one more thing. Returns `None` at the end of the detection.
    fn look_on(&mut self, mut look: Look) -> Option<Look> {
        if let Some(key) = look.again.pop() {
            let queue = self.queue(&key, look.seen.waits.values());
            look.later.insert(key, queue);
        } else if let Some((seen, truth)) = look.first.take() {
            let both = if self.broken == Broken::SecondLook { seen } else { seen.also_in(&look.later) };
            self.judge(&both, &truth, look.of);
            return None;
        } else if let Some(caller) = look.todo.pop() {
            self.read(caller, &mut look);
        } else {
            let stuck = look.seen.stuck();
            stuck.cycles_to_break().remove(&look.of)?;
            look.again = stuck.keys().into_iter().collect();
            look.first = Some((look.seen.clone(), self.truth()));
        }
        Some(look)
    }

    /// Reads a text, and the queue that it names.
    fn read(&self, caller: usize, look: &mut Look) {
        if !look.read.insert(caller) {
            return;
        }
        let Some(wait) = self.callers[caller].text.clone() else { return };
        let queue = self.queue(&wait.key, [&wait]);
        let ids = queue.waiters.iter().map(|id| usize::try_from(u128::from(*id) & 0xff).unwrap());
        look.todo.extend(ids);
        let is_holder = |other: &Caller| {
            let text = other.text.as_ref();
            text.is_some_and(|text| {
                text.around.iter().any(|hold| queue.holders.iter().any(|held| held.0 == hold.fence))
            })
        };
        look.todo.extend((0..CALLERS).filter(|other| is_holder(&self.callers[*other])));
        look.seen.queues.entry(wait.key.clone()).or_insert(queue);
        look.seen.waits.insert(wait.id, wait);
    }

    /// Reads a queue. If texts are believed, all waits that they tell are in it.
    fn queue<'a>(&self, key: &Key, told: impl IntoIterator<Item = &'a Wait>) -> Queue {
        let mut queue = self.queues[key].clone();
        if self.broken == Broken::QueuesAreRead {
            let here = told.into_iter().filter(|wait| wait.key == *key).map(|wait| wait.id);
            let missing: Vec<Id> = here.filter(|id| !queue.waiters.contains(id)).collect();
            queue.waiters.extend(missing);
        }
        queue
    }

    fn truth(&self) -> Picture {
        let waits = self.callers.iter().filter_map(|caller| caller.wait.clone());
        Picture { waits: waits.map(|wait| (wait.id, wait)).collect(), queues: self.queues.clone() }
    }

    /// All waits of a report were stuck between its looks.
    fn judge(&mut self, seen: &Picture, truth: &Picture, of: Id) {
        let (stuck, truth) = (seen.stuck(), truth.stuck());
        if let Some(cycle) = stuck.cycles_to_break().remove(&of) {
            self.reports += 1;
            self.false_reports += usize::from(!cycle.iter().all(|wait| truth.has(wait.id)));
        }
    }
}

/// Returns how many reports there were, and how many of them were false.
fn run(worlds: u64, broken: Broken) -> (usize, usize) {
    let world = |seed| {
        let mut world = World::new(seed, broken);
        (0..STEPS).for_each(|_| world.step());
        (world.reports, world.false_reports)
    };
    (0..worlds).map(world).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

#[test]
fn two_looks_report_no_false_deadlock() {
    let (reports, false_reports) = run(400, Broken::Nothing);
    assert!(reports > 2_000, "{reports}");
    assert_eq!(false_reports, 0, "of {reports}");
}

#[test]
fn one_look_reports_false_deadlocks() {
    let (reports, false_reports) = run(100, Broken::SecondLook);
    assert!(false_reports > 0, "of {reports}");
}

#[test]
fn texts_without_queues_report_false_deadlocks() {
    let (reports, false_reports) = run(100, Broken::QueuesAreRead);
    assert!(false_reports > 0, "of {reports}");
}
