//! Every course of events of two or three processes at one key, in whole units of time, up to an end.

use super::Rules;
use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
};

/// The cap and two leases, in units of time.
const CAP: i8 = 1;
const LEASES: [i8; 2] = [2, 1];

/// The most ticks and writes of one course.
const MOST_TICKS: usize = 7;
const MOST_WRITES: u8 = 7;

#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) processes: u8,
    pub(super) permits: usize,
    /// The real time at which courses end.
    pub(super) until: i8,
    /// Whether processes end, and others come in their places.
    pub(super) visits: bool,
    /// Whether the store removes a value as soon as it may.
    pub(super) removes: bool,
    /// The most states to explore.
    pub(super) most: usize,
}

#[derive(Debug)]
#[expect(dead_code, reason = "shown")]
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) is_early: bool,
    /// Whether there are no other states.
    pub(super) is_whole: bool,
}

/// A tick at the key. The last three numbers are used by broken rules only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Tick {
    time: i8,
    written: i8,
    by: u8,
    sent: i8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Promise {
    owner: u8,
    end: i8,
    /// When it ends for its owner, in real time.
    deadline: i8,
}

/// A promise as it is in the value.
type Written = (u8, i8);

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    real: i8,
    ticks: Vec<Tick>,
    version: u8,
    promises: Vec<Promise>,
    /// The real time from which on the store may remove the value.
    kept_until: i8,
    processes: Vec<Process>,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Process {
    tick: u8,
    base: i8,
    at: i8,
    version: u8,
    promises: Vec<Written>,
    /// A tick on its way: the one that it replaces, its time, and when it was sent.
    ticking: Option<(u8, i8, i8)>,
    asking: Option<Ask>,
    /// From a refusal: the time of the clock, and when the request was sent.
    found: Option<(i8, i8)>,
}

/// A write or comparison on its way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Ask {
    version: u8,
    tick: Option<u8>,
    value: Option<Vec<Written>>,
    /// Until when the value is kept in real time. `None` to leave that as it is.
    kept_until: Option<i8>,
    deadline: i8,
    sent: i8,
}

pub(super) fn explore(rules: &Rules, size: &Size) -> Explored {
    let hasher = RandomState::new();
    let first = State {
        real: 0,
        ticks: vec![Tick { time: 0, written: 0, by: 255, sent: 0 }],
        version: 0,
        promises: Vec::new(),
        kept_until: 0,
        processes: vec![Process::default(); usize::from(size.processes)],
    };
    let (mut seen, mut queue) = (HashSet::from([hasher.hash_one(&first)]), VecDeque::from([first]));
    while let Some(state) = queue.pop_front() {
        let explorer = Explorer { rules, size, state: &state, next: Vec::new() };
        let Some(next) = explorer.all() else {
            return Explored { states: seen.len(), is_early: true, is_whole: true };
        };
        for mut state in next {
            state.normalize(rules);
            if seen.insert(hasher.hash_one(&state)) {
                queue.push_back(state);
            }
        }
        if seen.len() > size.most {
            return Explored { states: seen.len(), is_early: false, is_whole: false };
        }
    }
    Explored { states: seen.len(), is_early: false, is_whole: true }
}

impl State {
    fn latest(&self) -> u8 {
        u8::try_from(self.ticks.len() - 1).unwrap()
    }

    fn now(&self, process: &Process, rules: &Rules) -> i8 {
        let now = process.base + self.real - process.at;
        if rules.stops { now.min(self.ticks[usize::from(process.tick)].time + CAP) } else { now }
    }

    fn learn(&mut self, me: usize, tick: u8, rules: &Rules) {
        let before = self.now(&self.processes[me], rules);
        let Tick { time, by, sent, .. } = self.ticks[usize::from(tick)];
        let from_receipt =
            if usize::from(by) == me { rules.own_from_receipt } else { rules.others_from_receipt };
        let base = if from_receipt { time } else { time + self.real - sent };
        let process = &mut self.processes[me];
        (process.tick, process.base, process.at) = (tick, base.max(before), self.real);
    }

    fn written(&self) -> Vec<Written> {
        self.promises.iter().map(|promise| (promise.owner, promise.end)).collect()
    }

    /// Makes states equal that differ in nothing that matters later: messages that can only be refused, values that are
    /// known too late, deadlines that no step on its way can miss.
    fn normalize(&mut self, rules: &Rules) {
        let (latest, real, version) = (self.latest(), self.real, self.version);
        for me in 0..self.processes.len() {
            let now = self.now(&self.processes[me], rules);
            let process = &mut self.processes[me];
            (process.base, process.at) = (now, real);
            if rules.tick_compares {
                process.ticking.take_if(|(named, ..)| *named != latest);
            }
            process
                .asking
                .take_if(|ask| ask.version != version || ask.tick.is_some_and(|tick| tick != latest));
            if process.version == version {
                process.version = 0;
            } else {
                (process.version, process.promises, process.found) = (9, Vec::new(), None);
            }
            process.asking.iter_mut().for_each(|ask| ask.version = 0);
        }
        self.version = 0;
        let asked = self.processes.iter().filter_map(|process| process.asking.as_ref().map(|ask| ask.sent));
        let earliest = asked.min().unwrap_or(real);
        for promise in self.promises.iter_mut().filter(|promise| promise.deadline <= earliest) {
            promise.deadline = 0;
        }
        let first = self.processes.iter().map(|process| process.tick).min().unwrap();
        self.ticks.drain(..usize::from(first));
        for process in &mut self.processes {
            process.tick -= first;
            process.ticking.iter_mut().for_each(|(named, ..)| *named = named.wrapping_sub(first));
            process.asking.iter_mut().filter_map(|ask| ask.tick.as_mut()).for_each(|tick| *tick -= first);
        }
    }
}

/// What may come after one state.
struct Explorer<'a> {
    rules: &'a Rules,
    size: &'a Size,
    state: &'a State,
    next: Vec<State>,
}

impl Explorer<'_> {
    /// Returns the states that follow. `None` if a promise ends early.
    fn all(mut self) -> Option<Vec<State>> {
        if self.state.real < self.size.until {
            self.add(|state| state.real += 1);
        }
        self.remove()?;
        for me in 0..self.state.processes.len() {
            for tick in self.state.processes[me].tick + 1..=self.state.latest() {
                let rules = self.rules;
                self.add(|state| state.learn(me, tick, rules));
            }
            self.tick(me);
            self.read(me);
            self.visit(me);
            match &self.state.processes[me].asking {
                None => self.ask(me),
                Some(ask) => self.carry_out(me, ask)?,
            }
        }
        Some(self.next)
    }

    /// Returns `None` if this ends a promise early.
    fn remove(&mut self) -> Option<()> {
        let State { real, kept_until, promises, .. } = self.state;
        if !self.size.removes || promises.is_empty() || kept_until > real {
            return Some(());
        }
        self.add(|state| {
            state.version += 1;
            (state.promises, state.kept_until) = (Vec::new(), 0);
        });
        promises.iter().all(|promise| promise.deadline <= *real).then_some(())
    }

    fn add(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.clone();
        change(&mut state);
        self.next.push(state);
    }

    /// Whether broken rules use when a tick was written and sent.
    fn uses_real_times(&self) -> bool {
        !(self.rules.own_from_receipt && self.rules.others_from_receipt && self.rules.adds_no_gap)
    }

    fn tick(&mut self, me: usize) {
        let (state, process) = (self.state, &self.state.processes[me]);
        let real = if self.uses_real_times() { state.real } else { 0 };
        let Some((named, time, sent)) = process.ticking else {
            let last = state.ticks[usize::from(process.tick)];
            let now = state.now(process, self.rules);
            let with_gap = if self.rules.adds_no_gap { now } else { last.time + state.real - last.written };
            let times = if with_gap > now { vec![now, with_gap] } else { vec![now] };
            for time in times.into_iter().filter(|time| *time > last.time) {
                self.add(|state| state.processes[me].ticking = Some((state.processes[me].tick, time, real)));
            }
            return;
        };
        self.add(|state| state.processes[me].ticking = None);
        let counts = !self.rules.tick_compares || named == state.latest();
        if counts && state.ticks.len() + 1 < MOST_TICKS {
            self.add(|state| {
                state.processes[me].ticking = None;
                state.ticks.push(Tick { time, written: real, by: u8::try_from(me).unwrap(), sent });
            });
        }
    }

    /// A read, or a refusal. It may have been sent at any time up to now: the latest is the worst.
    fn read(&mut self, me: usize) {
        let (state, process, rules) = (self.state, &self.state.processes[me], self.rules);
        let latest = state.latest();
        let is_new = rules.repeats && process.found.is_none_or(|(_, sent)| sent < state.real);
        if process.version == state.version && process.tick == latest && !is_new {
            return;
        }
        self.add(|state| {
            let (found, written) = ((state.ticks[usize::from(latest)].time, state.real), state.written());
            let process = &mut state.processes[me];
            (process.version, process.promises) = (state.version, written);
            process.found = rules.repeats.then_some(found);
            if process.tick != latest {
                state.learn(me, latest, rules);
            }
        });
    }

    /// A process without a hold ends, and another one comes that knows what is there.
    fn visit(&mut self, me: usize) {
        let (state, process) = (self.state, &self.state.processes[me]);
        let holds = state.promises.iter().any(|promise| usize::from(promise.owner) == me);
        if !self.size.visits || holds || process.asking.is_some() || process.ticking.is_some() {
            return;
        }
        self.add(|state| {
            let (tick, at, version) = (state.latest(), state.real, state.version);
            let (base, promises) = (state.ticks[usize::from(tick)].time, state.written());
            state.processes[me] = Process { tick, base, at, version, promises, ..Process::default() };
        });
    }

    fn ask(&mut self, me: usize) {
        let (state, process, rules) = (self.state, &self.state.processes[me], self.rules);
        if process.version != state.version {
            return;
        }
        let (now, time) = (state.now(process, rules), state.ticks[usize::from(process.tick)].time);
        let owner = u8::try_from(me).unwrap();
        let left: Vec<_> = process.promises.iter().copied().filter(|(_, end)| *end > now).collect();
        let mut bases = vec![(rules.compares.then_some(process.tick), time)];
        if let Some((time, sent)) = process.found {
            let passed = if rules.adds_passed { state.real - sent } else { 0 };
            bases.push((None, time + passed));
        }
        for lease in LEASES {
            for (mut tick, time) in bases.iter().copied() {
                let end = lease + if rules.adds_cap { time + CAP } else { now };
                let (mut value, mut is_changed) = (left.clone(), true);
                match left.iter().position(|(of, _)| *of == owner) {
                    Some(at) if left[at].1 >= end => {
                        is_changed = self.size.removes && rules.keeps_anew;
                        tick = tick.filter(|_| is_changed || rules.compares_unchanged);
                    }
                    Some(at) => value[at].1 = end,
                    None if left.len() < self.size.permits => {
                        value.push((owner, end));
                        value.sort_unstable();
                    }
                    None => continue,
                }
                let (version, sent) = (process.version, state.real);
                let last = |value: &[Written]| value.iter().map(|(_, end)| *end).max();
                let is_later = rules.keeps_anew || last(&value) > last(&process.promises);
                let kept_until = last(&value).map(|last| sent + last - now).filter(|_| is_later);
                let kept_until = kept_until.filter(|_| self.size.removes);
                let value = is_changed.then_some(value);
                let ask = Ask { version, tick, value, kept_until, deadline: sent + lease, sent };
                self.add(|state| state.processes[me].asking = Some(ask));
            }
        }
    }

    /// Returns `None` if this ends a promise early.
    fn carry_out(&mut self, me: usize, ask: &Ask) -> Option<()> {
        let (state, owner) = (self.state, u8::try_from(me).unwrap());
        self.add(|state| state.processes[me].asking = None);
        let is_latest = ask.tick.is_none_or(|tick| tick == state.latest());
        if ask.version != state.version || !is_latest {
            return Some(());
        }
        let before =
            |of| state.promises.iter().find(|promise| promise.owner == of).map(|promise| promise.deadline);
        let Some(value) = &ask.value else {
            self.add(|state| {
                state.processes[me].asking = None;
                for promise in state.promises.iter_mut().filter(|promise| promise.owner == owner) {
                    promise.deadline = promise.deadline.max(ask.deadline);
                }
            });
            return Some(());
        };
        let is_kept =
            |promise: &Promise| promise.owner == owner || value.iter().any(|(of, _)| *of == promise.owner);
        if state.promises.iter().any(|promise| !is_kept(promise) && promise.deadline > ask.sent) {
            return None;
        }
        if state.version + 1 < MOST_WRITES {
            let promises = value.iter().map(|(of, end)| {
                let own = if *of == owner { ask.deadline } else { 0 };
                Promise { owner: *of, end: *end, deadline: before(*of).unwrap_or(0).max(own) }
            });
            let promises = promises.collect();
            self.add(|state| {
                state.processes[me].asking = None;
                state.version += 1;
                state.promises = promises;
                state.kept_until = ask.kept_until.unwrap_or(state.kept_until);
            });
        }
        Some(())
    }
}
