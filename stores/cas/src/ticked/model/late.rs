//! How late the promise of a dead holder ends, with bounded delays, whatever others do.

use super::{CAP, SECOND};
use fastrand::Rng;

#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "rules that are broken one by one")]
pub(super) struct Scene {
    pub(super) lease: i64,
    /// The longest time that a message takes.
    pub(super) delay: i64,
    /// Other processes, which tick as well.
    pub(super) others: usize,
    /// How often the process that ticked last is killed, 0 for never. Another one takes its place.
    pub(super) kills: i64,
    /// One message in so many is lost, 0 for none.
    pub(super) loss: u64,
    /// Whether the waiter hears of no tick but its own.
    pub(super) is_deaf: bool,
    /// How long nobody waits at first.
    pub(super) gap: i64,
    /// The waiter is a new process each time, connected for the first of these, then away for the second.
    pub(super) visits: Option<(i64, i64)>,
    /// Whether a visit leaves its time behind.
    pub(super) leaves: bool,
    /// How long a jump is measured after a visit, 0 for not at all.
    pub(super) measures: i64,
    /// After which time the ticks of a process end that.
    pub(super) stays_after: i64,
    pub(super) waiters_tick: bool,
    /// Whether a tick postpones the next one by less, as far as the process that wrote it was behind.
    pub(super) minds_lag: bool,
}

pub(super) const SCENE: Scene = Scene {
    lease: 10 * SECOND,
    delay: 5_000,
    others: 0,
    kills: 0,
    loss: 0,
    is_deaf: false,
    gap: 0,
    visits: None,
    leaves: true,
    measures: 0,
    stays_after: 5 * SECOND,
    waiters_tick: true,
    minds_lag: true,
};

const STEP: i64 = 1_000;
const AFTER_OWN: i64 = SECOND / 2;
const AFTER_OTHERS: [i64; 2] = [SECOND * 7 / 10, SECOND * 9 / 10];
const AGAIN: i64 = SECOND / 4;

/// One process.
#[derive(Clone, Copy, Default)]
struct One {
    is_here: bool,
    came: i64,
    tick: usize,
    base: i64,
    at: i64,
    due: i64,
}

/// A tick on its way to the key, or from there to a process.
#[derive(Clone, Copy)]
struct Sent {
    arrives: i64,
    process: usize,
    /// The tick that it replaces, or that it tells of.
    tick: usize,
    time: i64,
}

struct Run<'a> {
    scene: &'a Scene,
    rng: Rng,
    real: i64,
    /// The times, and the processes that wrote them.
    ticks: Vec<(i64, usize)>,
    processes: Vec<One>,
    up: Vec<Sent>,
    down: Vec<Sent>,
    /// Ticks that were lost with a process or on their way: each costs a cap.
    lost: i64,
    connected: i64,
    visit: i64,
    killed: i64,
    /// The jump that is measured, and when that is over.
    jump: Option<(i64, i64)>,
}

/// Returns the first run in which the promise ends later than `bound` after its lease, and by how much.
pub(super) fn worst(scene: &Scene, runs: u64, bound: i64) -> Result<(), (u64, Option<i64>)> {
    for number in 0..runs {
        let mut run = Run::new(scene, number);
        let late = run.late();
        if late.is_none_or(|late| late > bound + run.lost * SECOND) {
            return Err((number, late));
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    fn new(scene: &'a Scene, number: u64) -> Self {
        let mut run = Self {
            scene,
            rng: Rng::with_seed(number),
            real: 0,
            ticks: vec![(0, usize::MAX)],
            processes: vec![One::default(); 1 + scene.others],
            up: Vec::new(),
            down: Vec::new(),
            lost: 0,
            connected: 0,
            visit: scene.gap,
            killed: 0,
            jump: None,
        };
        for process in 1..=scene.others {
            let due = run.pause(false);
            run.processes[process] = One { is_here: true, due, ..One::default() };
        }
        run
    }

    /// Returns how much later than the lease the promise ends that was made at the first tick.
    fn late(&mut self) -> Option<i64> {
        let end = CAP + self.scene.lease;
        while self.real < 400 * SECOND + self.scene.gap {
            self.real += STEP;
            self.come_and_go();
            self.send();
            self.arrive();
            self.hear();
            self.kill();
            if self.processes[0].is_here && self.now(0) >= end {
                let took = match self.scene {
                    Scene { visits: Some(_), others: 0, measures: 0, .. } => self.connected,
                    Scene { others: 0, gap, .. } => self.real - gap,
                    _ => self.real,
                };
                return Some(took - self.scene.lease);
            }
        }
        None
    }

    fn now(&self, process: usize) -> i64 {
        let One { tick, base, at, .. } = self.processes[process];
        (base + self.real - at).min(self.ticks[tick].0 + CAP)
    }

    fn pause(&mut self, is_own: bool) -> i64 {
        if is_own { AFTER_OWN } else { self.rng.i64(AFTER_OTHERS[0]..AFTER_OTHERS[1]) }
    }

    fn delay(&mut self) -> i64 {
        self.real + 1 + self.rng.i64(0..self.scene.delay)
    }

    fn is_lost(&mut self) -> bool {
        let is_lost = self.scene.loss > 0 && self.rng.u64(0..self.scene.loss) == 0;
        self.lost += i64::from(is_lost);
        is_lost
    }

    /// The waiter comes and goes. It begins with the tick that it reads.
    fn come_and_go(&mut self) {
        let waits = match self.scene.visits {
            None => self.real >= self.scene.gap,
            Some((here, away)) => {
                if self.real >= self.visit + here + away {
                    self.visit += here + away;
                }
                (self.visit..self.visit + here).contains(&self.real)
            }
        };
        let was_here = self.processes[0].is_here;
        if waits && !was_here {
            if let Some((jump, _)) = self.jump.take_if(|(_, over)| *over <= self.real) {
                let last = self.ticks.last().map_or(0, |(time, _)| *time);
                self.ticks.push((jump.max(last), 0));
            }
            let last = self.ticks.len() - 1;
            let due = self.real + self.pause(false);
            let (base, at) = (self.ticks[last].0, self.real);
            self.processes[0] = One { is_here: true, came: at, tick: last, base, at, due };
        }
        if !waits && was_here {
            if self.scene.leaves {
                let (tick, time) = (self.processes[0].tick, self.now(0));
                self.up.push(Sent { arrives: self.real, process: 0, tick, time });
                if self.scene.measures > 0 {
                    let measures = self.scene.measures;
                    self.jump.get_or_insert((time + measures, self.real + measures));
                }
            }
            self.processes[0].is_here = false;
        }
        self.connected += if self.processes[0].is_here { STEP } else { 0 };
    }

    fn send(&mut self) {
        for process in 0..self.processes.len() {
            let One { is_here, tick, due, .. } = self.processes[process];
            if !is_here || self.real < due || process == 0 && !self.scene.waiters_tick {
                continue;
            }
            self.processes[process].due = self.real + AGAIN + 2 * self.scene.delay;
            let time = self.now(process);
            if time > self.ticks[tick].0 && !self.is_lost() {
                let arrives = self.delay();
                self.up.push(Sent { arrives, process, tick, time });
            }
        }
    }

    fn arrive(&mut self) {
        let real = self.real;
        for Sent { process, tick, time, .. } in
            self.up.extract_if(.., |sent| sent.arrives <= real).collect::<Vec<_>>()
        {
            let counts = tick == self.ticks.len() - 1 && time > self.ticks[tick].0;
            if counts {
                let One { is_here, came, .. } = self.processes[process];
                self.jump.take_if(|_| is_here && real >= came + self.scene.stays_after);
                self.ticks.push((time, process));
            }
            let tick = self.ticks.len() - 1;
            for to in 0..self.processes.len() {
                if to == process || counts && !(self.scene.is_deaf && to == 0) {
                    let arrives = self.delay();
                    self.down.push(Sent { arrives, process: to, tick, time: 0 });
                }
            }
        }
    }

    fn hear(&mut self) {
        let real = self.real;
        for Sent { process, tick, .. } in
            self.down.extract_if(.., |sent| sent.arrives <= real).collect::<Vec<_>>()
        {
            let one = self.processes[process];
            let (time, by) = self.ticks[tick];
            if !one.is_here || tick <= one.tick || by != process && self.is_lost() {
                continue;
            }
            let (base, pause) = (time.max(self.now(process)), self.pause(by == process));
            let lag = if by != process && self.scene.minds_lag { base - time } else { 0 };
            self.processes[process] = One { tick, base, at: real, due: real + (pause - lag).max(0), ..one };
        }
    }

    /// The process that ticked last is killed together with what it has sent. Another one comes in its place.
    fn kill(&mut self) {
        if self.scene.kills == 0 || self.real < self.killed + self.scene.kills {
            return;
        }
        self.killed = self.real;
        let tick = self.ticks.len() - 1;
        let (base, by) = self.ticks[tick];
        if by != usize::MAX && by > 0 {
            self.lost += 1;
            self.up.retain(|sent| sent.process != by);
            let at = self.real + 2 * SECOND;
            self.processes[by] = One { is_here: true, came: at, tick, base, at, due: at + SECOND };
        }
    }
}
