//! Long random courses: local clocks with offsets and drift, delays of any length, losses, late writes, processes that
//! end, gaps, and clocks that are deleted. While no rule is broken, the code of the clock runs beside the model.

use super::{Also, CAP, Rules, SECOND};
use crate::{
    ticked::{Least, Next, Source, Tick, Ticked},
    time::Found,
};
use fastrand::Rng;
use locker_core::clock::{Timestamp, lease_deadline};
use std::time::Duration;

/// What has happened in all courses.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) ticks: u64,
    pub(super) refused_ticks: u64,
    pub(super) grants: u64,
    pub(super) renewals: u64,
    pub(super) unchanged: u64,
    pub(super) repeated: u64,
    pub(super) ends: u64,
    pub(super) conflicts: u64,
    pub(super) crashes: u64,
    pub(super) lives: u64,
    pub(super) jumps: u64,
    /// How far the time at a key has gone ahead of real time at most.
    pub(super) gain: i64,
}

/// How far a jump leads.
const JUMP: i64 = 5 * SECOND;

/// The jump that a tick names, 0 for none.
#[derive(Clone, Copy, Default)]
struct Jump {
    to: i64,
    /// What measures it.
    measure: usize,
    /// Whether that is known to have begun.
    has_begun: bool,
}

/// A tick at the key.
#[derive(Clone, Copy)]
struct Written {
    jump: Jump,
    time: i64,
    real: i64,
    sent: i64,
    by: usize,
    of: u64,
    life: i64,
}

#[derive(Clone, Copy)]
struct Promise {
    id: u64,
    owner: usize,
    of: u64,
    end: i64,
    /// On the local clock of its owner.
    deadline: i64,
}

/// The clock as a refused write has found it.
#[derive(Clone, Copy)]
struct Refusal {
    latest: i64,
    sent: i64,
    life: i64,
}

#[derive(Clone, Default)]
struct Process {
    offset: i64,
    /// How many millionths its clock is too fast.
    drift: i64,
    /// Which of the processes in this place.
    of: u64,
    knows: bool,
    tick: usize,
    base: i64,
    at: i64,
    version: u64,
    promises: Vec<Promise>,
    refusal: Option<Refusal>,
    holds: Vec<u64>,
    /// The same, as the code knows it.
    code: Ticked,
}

/// A write or comparison on its way.
struct Ask {
    version: u64,
    tick: Option<usize>,
    life: Option<i64>,
    value: Option<Vec<Promise>>,
    id: u64,
    releases: bool,
    deadline: i64,
    /// The real time of the step, and its time on the clock.
    step: i64,
    time: i64,
    sent: i64,
    /// When the request was sent whose refusal the step counts from.
    from: Option<i64>,
}

struct Answer {
    tick: usize,
    version: u64,
    promises: Vec<Promise>,
    sent: i64,
    is_refusal: bool,
    granted: Option<u64>,
}

enum Message {
    Tick { named: usize, time: i64, jump: Jump, sent: i64 },
    Look { sent: i64 },
    Ask(Ask),
    Answer(Answer),
}

/// One course of events.
pub(super) struct Course<'a> {
    rules: &'a Rules,
    rng: Rng,
    tally: &'a mut Tally,
    real: i64,
    ticks: Vec<Written>,
    life: i64,
    stamp: i64,
    version: u64,
    promises: Vec<Promise>,
    permits: usize,
    processes: Vec<Process>,
    /// With the process that sent it, or that it is for.
    flying: Vec<(usize, u64, Message)>,
    ids: u64,
    jumps: bool,
    /// When what measures a jump is over, if it has begun.
    measures: Vec<Option<i64>>,
    /// The least lead of the time of a step over the real time of its write.
    least: Option<i64>,
}

impl Process {
    fn local(&self, real: i64) -> i64 {
        self.offset + real + real * self.drift / SECOND
    }
}

impl<'a> Course<'a> {
    /// Runs a course. Returns what went wrong.
    pub(super) fn run(
        rules: &'a Rules,
        number: u64,
        also: Also,
        tally: &'a mut Tally,
    ) -> Result<(), &'static str> {
        let mut rng = Rng::with_seed(number);
        let (count, permits) = (rng.usize(2..6), rng.usize(1..4));
        let (time, jump) = (1_000 * SECOND, Jump::default());
        let first = Written { jump, time, real: SECOND, sent: SECOND, by: usize::MAX, of: 0, life: 1 };
        let mut course = Self {
            rules,
            rng,
            tally,
            real: SECOND,
            ticks: vec![first],
            life: 1,
            stamp: first.time,
            version: 0,
            promises: Vec::new(),
            permits,
            processes: Vec::new(),
            flying: Vec::new(),
            ids: 0,
            jumps: also.jumps,
            measures: Vec::new(),
            least: None,
        };
        course.processes = (0..count).map(|_| course.fresh()).collect();
        let scale = [2_000, 50_000, SECOND, 5 * SECOND][course.rng.usize(0..4)];
        let (deletes, events) = (also.deletes || course.rng.u8(0..4) == 0, 60 + course.rng.usize(0..500));
        for _ in 0..events {
            course.event(scale, deletes)?;
        }
        Ok(())
    }

    fn fresh(&mut self) -> Process {
        self.ids += 1;
        let (offset, drift) = (self.rng.i64(0..1_000_000 * SECOND), self.rng.i64(-499..500));
        Process { offset, drift, of: self.ids, ..Process::default() }
    }

    fn event(&mut self, scale: i64, deletes: bool) -> Result<(), &'static str> {
        self.tally.events += 1;
        self.real += match self.rng.u8(0..40) {
            0 => self.rng.i64(0..40 * SECOND),
            1..=4 => self.rng.i64(0..2 * SECOND),
            5..=15 => self.rng.i64(0..scale),
            _ => self.rng.i64(0..2_000),
        };
        let me = self.rng.usize(0..self.processes.len());
        let local = self.processes[me].local(self.real);
        match self.rng.u8(0..16) {
            0..=2 => self.watch(me),
            3..=4 => self.tick(me, local)?,
            5 => self.send(me, Message::Look { sent: local }),
            6..=9 => self.ask(me, local)?,
            10..=13 => self.deliver()?,
            // It is killed, or a visit ends. Its holds remain, and another process takes its place.
            14 if self.rng.u8(0..6) == 0 => {
                self.tally.crashes += 1;
                self.processes[me] = self.fresh();
            }
            15 if deletes && self.rng.u8(0..8) == 0 => self.delete(me, local),
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, me: usize, message: Message) {
        self.flying.push((me, self.processes[me].of, message));
    }

    fn now(&self, me: usize, local: i64) -> i64 {
        let Process { base, at, tick, .. } = self.processes[me];
        let now = base + local - at;
        if self.rules.stops { now.min(self.ticks[tick].time + CAP) } else { now }
    }

    fn learn(&mut self, me: usize, tick: usize) {
        let local = self.processes[me].local(self.real);
        let Written { jump, time, by, of, sent, life, .. } = self.ticks[tick];
        let process = &self.processes[me];
        let is_own = by == me && of == process.of;
        let from_receipt = if is_own { self.rules.own_from_receipt } else { self.rules.others_from_receipt };
        let mut base = if from_receipt { time } else { time + local - process.local(sent) };
        if process.knows && (!self.rules.begins_anew || self.ticks[process.tick].life == life) {
            base = base.max(self.now(me, local));
        }
        let process = &mut self.processes[me];
        (process.tick, process.base, process.at, process.knows) = (tick, base, local, true);
        let source = if is_own { Source::Own } else { Source::Told };
        process.code.learn(as_tick(time, life, jump.to), source, at(local));
    }

    /// The watch shows a tick, late or not, or passes over some.
    fn watch(&mut self, me: usize) {
        let Process { knows, tick, .. } = self.processes[me];
        let last = self.ticks.len() - 1;
        if knows && tick < last {
            let tick = if self.rng.bool() { last } else { self.rng.usize(tick + 1..=last) };
            self.learn(me, tick);
        }
    }

    fn tick(&mut self, me: usize, local: i64) -> Result<(), &'static str> {
        let Process { knows, tick: named, .. } = self.processes[me];
        if !knows {
            return Ok(());
        }
        let (last, mut time) = (self.ticks[named], self.now(me, local));
        if !self.rules.adds_no_gap {
            time = time.max(last.time + self.real - last.real);
        }
        let measured = if self.jumps { self.measured(named) } else { 0 };
        if !self.rules.jumps_where_named || measured == last.jump.to {
            time = time.max(measured.min(self.latest(named)));
        }
        if self.rules.is_whole() {
            let next = self.processes[me].code.next(at(local), Least { jump: at(measured), wall: at(0) });
            if next.map(|(_, Next { time, .. })| micros(time)) != (time > last.time).then_some(time) {
                return Err("the code writes another tick than the model");
            }
        }
        if time > last.time {
            let jump = if self.jumps { self.jump(me, named, time) } else { Jump::default() };
            self.tally.jumps += u64::from(time > last.time + CAP);
            self.send(me, Message::Tick { named, time, jump, sent: self.real });
        }
        Ok(())
    }

    /// Returns the latest time that the tick after this one may show.
    fn latest(&self, tick: usize) -> i64 {
        let Written { jump, time, .. } = self.ticks[tick];
        (time + CAP).max(jump.to)
    }

    /// Returns the jump that this tick names, if it has been reached, or the last such one before: a process may have
    /// asked for that before it learned of later ticks.
    fn measured(&mut self, named: usize) -> i64 {
        let is_reached = |tick: &usize| {
            let Written { jump: Jump { to, measure, has_begun }, time, .. } = self.ticks[*tick];
            to > time && has_begun && self.measures[measure].is_some_and(|over| over <= self.real)
        };
        let before = (0..=named).rev().find(is_reached).filter(|_| self.rng.bool());
        let asked = before.unwrap_or(named);
        let Written { jump: Jump { to, measure, has_begun }, life, .. } = self.ticks[asked];
        if to == 0 || life != self.ticks[named].life || !has_begun && self.rules.knows_measure {
            return 0;
        }
        let is_over = self.measures[measure].is_none_or(|over| over <= self.real);
        if is_over { to } else { 0 }
    }

    /// Returns the jump that the next tick names: that of the last one, none, or a new one. A process that knows that
    /// its own has got there begins to measure it.
    fn jump(&mut self, me: usize, named: usize, time: i64) -> Jump {
        let Written { jump, by, of, .. } = self.ticks[named];
        let is_own = by == me && of == self.processes[me].of;
        if jump.to > time && is_own && !jump.has_begun {
            self.begin(jump.measure);
            return Jump { has_begun: true, ..jump };
        }
        match self.rng.u8(0..8) {
            0..=3 if jump.to > time => jump,
            4..=5 => {
                self.measures.push(None);
                let measure = self.measures.len() - 1;
                if !self.rules.measures_after {
                    self.begin(measure);
                }
                Jump { to: time + JUMP, measure, has_begun: false }
            }
            _ => Jump::default(),
        }
    }

    fn begin(&mut self, measure: usize) {
        let lasts = JUMP - JUMP / 2_000 + self.rng.i64(0..SECOND / 10);
        self.measures[measure].get_or_insert(self.real + lasts);
    }

    /// Sends a write or a comparison: a grant, a renewal or a release.
    fn ask(&mut self, me: usize, local: i64) -> Result<(), &'static str> {
        if !self.processes[me].knows {
            return Ok(());
        }
        let (rules, time) = (self.rules, self.now(me, local));
        let lease = [SECOND / 3, SECOND, 3 * SECOND, 10 * SECOND][self.rng.usize(0..4)];
        let refusal = self.processes[me].refusal.take().filter(|_| rules.repeats);
        let end = self.end(me, local, time, lease, refusal)?;
        let process = &self.processes[me];
        let mut value: Vec<_> =
            process.promises.iter().copied().filter(|promise| promise.end > time).collect();
        let held = process.holds.iter().copied().find(|id| value.iter().any(|promise| promise.id == *id));
        let mut ask = Ask {
            version: process.version,
            tick: if refusal.is_some() { None } else { rules.compares.then_some(process.tick) },
            life: refusal.filter(|_| rules.names_life).map(|refusal| refusal.life),
            value: None,
            id: held.unwrap_or(self.ids + 1),
            releases: false,
            deadline: micros(lease_deadline(at(local), duration(lease))),
            step: self.real,
            time,
            sent: local,
            from: refusal.map(|refusal| refusal.sent),
        };
        match held {
            Some(id) if self.rng.u8(0..6) == 0 => {
                value.retain(|promise| promise.id != id);
                self.processes[me].holds.retain(|held| *held != id);
                (ask.value, ask.releases) = (Some(value), true);
            }
            Some(id) if self.rng.u8(0..8) > 0 || value.len() >= self.permits => {
                let promise = value.iter_mut().find(|promise| promise.id == id).expect("it is there");
                if promise.end >= end {
                    ask.tick = ask.tick.filter(|_| rules.compares_unchanged);
                } else {
                    promise.end = end;
                    ask.value = Some(value);
                }
            }
            _ if value.len() < self.permits => {
                self.ids += 1;
                ask.id = self.ids;
                let of = self.processes[me].of;
                value.push(Promise { id: ask.id, owner: me, of, end, deadline: ask.deadline });
                ask.value = Some(value);
            }
            _ => return Ok(()),
        }
        self.send(me, Message::Ask(ask));
        Ok(())
    }

    /// Returns the end of a promise for `lease`. The code must come to the same.
    fn end(
        &mut self,
        me: usize,
        local: i64,
        time: i64,
        lease: i64,
        refusal: Option<Refusal>,
    ) -> Result<i64, &'static str> {
        let (rules, process) = (self.rules, &self.processes[me]);
        let last = match refusal {
            Some(Refusal { latest, sent, .. }) => {
                let passed = if rules.adds_passed { local - sent } else { 0 };
                latest + passed + passed / 1_000 + i64::from(rules.adds_passed)
            }
            None => self.promised(process.tick),
        };
        self.tally.repeated += u64::from(refusal.is_some());
        let end = if rules.adds_cap { last } else { time } + lease;
        if rules.is_whole() {
            let plain = process.code.time(at(local)).expect("it knows the clock");
            let found = refusal.map(|Refusal { latest, sent, life }| Found {
                life,
                latest: at(latest),
                sent: at(sent),
            });
            let is_of_this_life = refusal.is_none_or(|refusal| refusal.life == self.ticks[process.tick].life);
            let code = found.map_or(plain.clone(), |found| found.time(plain, at(local)));
            if micros(code.now) != time
                || is_of_this_life && micros(code.now + code.spread) + lease != end.max(time + lease)
            {
                return Err("the code has another time than the model");
            }
        }
        Ok(end)
    }

    /// Delivers a message: mostly the newest one, so that late ones are late. Some are lost.
    fn deliver(&mut self) -> Result<(), &'static str> {
        if self.flying.is_empty() {
            return Ok(());
        }
        let last = self.flying.len() - 1;
        let at = if self.rng.u8(0..3) == 0 { self.rng.usize(0..=last) } else { last };
        let (me, of, message) = self.flying.remove(at);
        if self.rng.u8(0..12) == 0 {
            return Ok(());
        }
        match message {
            Message::Tick { named, time, jump, sent } => {
                let (real, life) = (self.real, self.life);
                self.write_tick(named, Written { jump, time, real, sent, by: me, of, life });
            }
            Message::Look { sent } => self.answer(me, of, sent, false, None),
            Message::Ask(ask) => self.carry_out(me, of, &ask)?,
            Message::Answer(answer) => self.take(me, of, answer),
        }
        Ok(())
    }

    fn write_tick(&mut self, named: usize, tick: Written) {
        if named != self.ticks.len() - 1 && self.rules.tick_compares {
            self.tally.refused_ticks += 1;
            return;
        }
        self.tally.ticks += 1;
        self.ticks.push(tick);
    }

    /// Returns what is taken for the latest time of the tick after this one by what promises an end.
    fn promised(&self, tick: usize) -> i64 {
        if self.rules.counts_jump { self.latest(tick) } else { self.ticks[tick].time + CAP }
    }

    fn answer(&mut self, to: usize, of: u64, sent: i64, is_refusal: bool, granted: Option<u64>) {
        let (tick, version, promises) = (self.ticks.len() - 1, self.version, self.promises.clone());
        let answer = Answer { tick, version, promises, sent, is_refusal, granted };
        self.flying.push((to, of, Message::Answer(answer)));
    }

    fn carry_out(&mut self, me: usize, of: u64, ask: &Ask) -> Result<(), &'static str> {
        let is_refused = ask.version != self.version
            || ask.tick.is_some_and(|tick| tick != self.ticks.len() - 1)
            || ask.life.is_some_and(|life| life != self.life);
        let granted = (!is_refused && !ask.releases).then_some(ask.id);
        let (sent, id, deadline) = (ask.sent, ask.id, ask.deadline);
        if is_refused {
            self.tally.conflicts += 1;
        } else if ask.value.is_some() {
            self.write(me, of, ask)?;
        } else {
            self.tally.unchanged += 1;
            for promise in self.promises.iter_mut().filter(|promise| promise.id == id) {
                promise.deadline = promise.deadline.max(deadline);
            }
        }
        self.answer(me, of, sent, is_refused, granted);
        Ok(())
    }

    fn write(&mut self, me: usize, of: u64, ask: &Ask) -> Result<(), &'static str> {
        let value = ask.value.as_ref().expect("a write has a value");
        for promise in &self.promises {
            let is_ended = value.iter().all(|kept| kept.id != promise.id);
            if !is_ended || ask.releases && promise.id == ask.id {
                continue;
            }
            self.tally.ends += 1;
            let owner = &self.processes[promise.owner];
            // Two microseconds of rounding.
            if owner.of == promise.of && owner.local(ask.step) + 2 < promise.deadline {
                return Err("a promise ended early");
            }
        }
        self.check_gain(me, of, ask)?;
        self.version += 1;
        self.stamp = self.stamp.max(ask.time);
        let is_new = self.promises.iter().all(|promise| promise.id != ask.id);
        match (ask.releases, is_new) {
            (true, _) => {}
            (false, true) => self.tally.grants += 1,
            (false, false) => self.tally.renewals += 1,
        }
        let deadline = |promise: Promise| {
            let before = self.promises.iter().find(|old| old.id == promise.id).map_or(0, |old| old.deadline);
            let own = if promise.id == ask.id { ask.deadline } else { 0 };
            Promise { deadline: promise.deadline.max(before).max(own), ..promise }
        };
        self.promises = value.iter().copied().map(deadline).collect();
        Ok(())
    }

    /// On the clock of the key no step is ahead of another by more than the cap.
    fn check_gain(&mut self, me: usize, of: u64, ask: &Ask) -> Result<(), &'static str> {
        let drift = self.real / 2_000 + 2;
        // A jump makes up for what was lost before.
        if let Some(least) = self.least.filter(|_| !self.jumps) {
            let gain = ask.time - ask.step - least;
            self.tally.gain = self.tally.gain.max(gain - drift);
            if gain > CAP + drift {
                return Err("the time at a key has gone ahead");
            }
        }
        if self.rules.compares && (self.processes[me].of == of || ask.from.is_none()) {
            let passed = ask.from.map(|from| ask.sent - from);
            let counts_from =
                passed.map_or(self.real, |passed| self.real.min(ask.step - passed - 2 - passed / 1_000));
            let lead = ask.time - counts_from;
            self.least = Some(self.least.map_or(lead, |least| least.min(lead)));
        }
        Ok(())
    }

    fn take(&mut self, to: usize, of: u64, answer: Answer) {
        if self.processes[to].of != of {
            return;
        }
        let Answer { tick, version, promises, sent, is_refusal, granted } = answer;
        // Only a refusal and a look bring the clock.
        if is_refusal || granted.is_none() {
            let (latest, life) = (self.promised(tick), self.ticks[tick].life);
            self.processes[to].refusal = is_refusal.then_some(Refusal { latest, sent, life });
            let Process { knows, tick: known, .. } = self.processes[to];
            if !knows || tick > known {
                self.learn(to, tick);
            }
        }
        let process = &mut self.processes[to];
        if version >= process.version {
            (process.version, process.promises) = (version, promises);
        }
        if let Some(id) = granted.filter(|id| !process.holds.contains(id)) {
            process.holds.push(id);
        }
    }

    /// Somebody deletes the clock. A process that knew it makes it anew, or one that has just come.
    fn delete(&mut self, me: usize, local: i64) {
        let Process { knows, tick, .. } = self.processes[me];
        let knew = knows && self.ticks[tick].life == self.life && self.rng.bool();
        let time = match self.rules.begins_at_stamp {
            false => 999 * SECOND + self.real,
            true if knew && self.rules.begins_at_latest => self.now(me, local).max(self.stamp),
            true if knew => self.now(me, local),
            true => self.stamp,
        };
        self.life += 1;
        self.tally.lives += 1;
        let (real, life) = (self.real, self.life);
        let jump = Jump::default();
        self.ticks.push(Written { jump, time, real, sent: real, by: usize::MAX, of: 0, life });
    }
}

impl Rules {
    fn is_whole(&self) -> bool {
        format!("{self:?}") == format!("{:?}", super::RULES)
    }
}

fn as_tick(time: i64, life: i64, jump: i64) -> Tick {
    let (version, time) = (time.to_be_bytes().into(), at(time));
    Tick { life, version, time, gaps: Duration::ZERO, jump: at(jump) }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).expect("times are positive"))
}

fn micros(time: Timestamp) -> i64 {
    i64::try_from(time.as_micros()).expect("times are small")
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).expect("durations are positive"))
}
