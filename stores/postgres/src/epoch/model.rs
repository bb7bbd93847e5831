//! A model of the epochs: every course of processes that open a store, use it, stop for any time and end, beside
//! crashes that lose what is not on the disk, promoted standbys that lag, copies, and a row or table that is deleted.
//!
//! Each transaction is one event, and each rule is then broken. `LOCKER_MODEL=full` explores more processes and faults:
//! `LOCKER_MODEL=full cargo test --release -p locker-postgres epoch::model`.

use locker_harness::{explore, explores_more, free_number, rename};
use std::hash::{BuildHasher, RandomState};

/// Two holds, and how long a commit that does not wait may take to be on the disk, in units of time.
const HOLDS: [u8; 2] = [1, 2];
const LONG: u8 = 2;
const WRITTEN: u8 = 1;

/// The rules of the store.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is broken alone")]
struct Rules {
    /// One transaction begins the quiet time and marks the epoch.
    begins_with_mark: bool,
    /// The epoch is that of the timeline in `locker_meta`.
    names_timeline: bool,
    /// Another timeline begins a quiet time.
    counts_timeline: bool,
    /// A crash within a quiet time does not end it.
    keeps_quiet: bool,
    /// The quiet time is that of this timeline from now on.
    sets_timeline: bool,
    /// A process that does not wait for the disk marks the store as one that a crash sets back, for good.
    marks_quick: bool,
    /// That is on the disk.
    marks_durably: bool,
    /// It uses no epoch in which that is not said.
    needs_mark: bool,
    /// New tables have lost nothing.
    trusts_new: bool,
    /// A table without its row is not new.
    counts_table: bool,
    /// Nor are tables with a key.
    counts_keys: bool,
    /// Nor are those with an epoch.
    counts_epoch: bool,
    /// A row that is made again ends the epoch.
    ends_epoch: bool,
    /// A write names the epoch.
    names_epoch: bool,
    /// A new key needs the row.
    needs_row: bool,
    /// The longest hold is on the disk before it is used.
    raises_durably: bool,
}

const RULES: Rules = Rules {
    begins_with_mark: true,
    names_timeline: true,
    counts_timeline: true,
    keeps_quiet: true,
    sets_timeline: true,
    marks_quick: true,
    marks_durably: true,
    needs_mark: true,
    trusts_new: true,
    counts_table: true,
    counts_keys: true,
    counts_epoch: true,
    ends_epoch: true,
    names_epoch: true,
    needs_row: true,
    raises_durably: true,
};

/// The row of `locker_meta`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Meta {
    quick: bool,
    timeline: Option<u8>,
    /// How long nothing is granted.
    quiet: u8,
    longest: u8,
}

/// What a disk keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Tables {
    are_made: bool,
    row: Option<Meta>,
    /// The key, and how long it is held.
    held: Option<u8>,
}

/// The id in `locker_boot`, which no crash and no standby keeps.
type Boot = Option<u8>;

/// What a process does next to open the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Make,
    Begin,
    /// If the mark is made before the quiet time begins.
    BeginLate,
    SayQuick,
    Sample,
}

/// What a process knows of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Known {
    id: u8,
    quiet: u8,
    longest: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Process {
    is_durable: bool,
    step: Step,
    epoch: Option<Known>,
    /// How long it holds the key.
    holds: u8,
}

impl Process {
    fn new(is_durable: bool) -> Self {
        Self { is_durable, step: Step::Make, epoch: None, holds: 0 }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    timeline: u8,
    tables: Tables,
    boot: Boot,
    /// What a crash may return to, and for how long still.
    older: Vec<(Tables, u8)>,
    /// What a standby has, or a copy.
    replica: (Tables, Boot),
    processes: Vec<Process>,
    faults: u8,
    /// The longest hold of new tables.
    first_longest: u8,
    /// Whether something happened after which grants may be lost.
    may_have_lost: bool,
    /// How many quiet times have begun since the last fault.
    quiet_times: u8,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    /// Whether each process waits for the disk.
    are_durable: &'static [bool],
    faults: u8,
    /// Whether the server tells its timeline.
    tells: bool,
    has_replica: bool,
    /// Whether holds become longer. Otherwise the row may be lost, and what it says of the longest.
    raises: bool,
}

/// Why a course ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    TwoHolders,
    NeedlessQuiet,
    QuietAgain,
    NobodyHolds,
}

impl World {
    fn new(size: &Size) -> Self {
        Self {
            timeline: 1,
            tables: Tables::default(),
            boot: None,
            older: Vec::new(),
            replica: <_>::default(),
            processes: size.are_durable.iter().copied().map(Process::new).collect(),
            faults: size.faults,
            first_longest: if size.raises { HOLDS[0] } else { LONG },
            may_have_lost: !size.tells,
            quiet_times: 0,
        }
    }

    fn timeline(&self, size: &Size) -> Option<u8> {
        Some(self.timeline).filter(|_| size.tells)
    }

    /// Changes the tables. A commit that waits brings those before it to the disk, too.
    fn commit(&mut self, waits: bool, change: impl FnOnce(&mut Tables)) {
        let before = self.tables;
        change(&mut self.tables);
        if self.tables == before {
            // Nothing is written, so nothing is waited for.
        } else if waits {
            self.older.clear();
        } else {
            self.older.retain(|(tables, _)| *tables != before);
            self.older.push((before, WRITTEN));
        }
    }

    fn change_row(&mut self, waits: bool, change: impl Fn(&mut Meta)) {
        self.commit(waits, |tables| tables.row.iter_mut().for_each(change));
    }

    fn new_id(&self) -> u8 {
        let known = self.processes.iter().filter_map(|process| process.epoch.map(|known| known.id));
        free_number(known.chain(self.boot).chain(self.replica.1))
    }

    fn is_begun(&self, rules: &Rules, size: &Size) -> bool {
        let of_another = |row: Meta| {
            row.timeline.zip(self.timeline(size)).is_some_and(|(its, present)| its != present)
                && rules.names_timeline
        };
        self.boot.is_some() && !self.tables.row.is_some_and(of_another)
    }

    /// The process does what is next to open the store.
    fn proceed(&mut self, at: usize, rules: &Rules, size: &Size) {
        let is_durable = self.processes[at].is_durable;
        let next = match self.processes[at].step {
            Step::Make => {
                self.make(rules, size);
                Step::Begin
            }
            Step::Begin if self.is_begun(rules, size) || self.tables.row.is_none() => Step::SayQuick,
            Step::Begin => {
                self.boot = Some(self.new_id());
                if rules.begins_with_mark {
                    self.begin(rules, size);
                    Step::SayQuick
                } else {
                    Step::BeginLate
                }
            }
            Step::BeginLate => {
                self.begin(rules, size);
                Step::SayQuick
            }
            Step::SayQuick => {
                if !is_durable && rules.marks_quick {
                    self.change_row(rules.marks_durably, |row| row.quick = true);
                }
                Step::Sample
            }
            Step::Sample => {
                if self.learn(at, rules) {
                    Step::Sample
                } else {
                    Step::Make
                }
            }
        };
        self.processes[at].step = next;
    }

    /// Makes the tables, which need not be on the disk, or only the row.
    fn make(&mut self, rules: &Rules, size: &Size) {
        if self.tables.row.is_some() {
            return;
        }
        let has_epoch = self.boot.is_some();
        self.boot = self.boot.filter(|_| !rules.ends_epoch);
        let Tables { are_made: waits, held, .. } = self.tables;
        let is_known = !rules.trusts_new
            || rules.counts_table && waits
            || rules.counts_keys && held.is_some()
            || rules.counts_epoch && has_epoch;
        let longest = self.first_longest;
        let (timeline, quiet) = if is_known { (None, longest) } else { (self.timeline(size), 0) };
        self.commit(waits, |tables| {
            (tables.are_made, tables.row) = (true, Some(Meta { quick: false, timeline, quiet, longest }));
        });
    }

    fn begin(&mut self, rules: &Rules, size: &Size) {
        let timeline = self.timeline(size);
        let Some(row) = self.tables.row else { return };
        let is_same = !rules.counts_timeline || row.timeline.is_some() && row.timeline == timeline;
        let kept = if rules.keeps_quiet { row.quiet.min(row.longest) } else { 0 };
        let quiet = if is_same && !row.quick { kept } else { row.longest };
        self.quiet_times += u8::from(quiet > kept);
        let timeline = if rules.sets_timeline { timeline } else { row.timeline };
        self.change_row(true, |row| (row.timeline, row.quiet) = (timeline, quiet));
    }

    /// The process learns of the state of the store. Returns whether it can be used.
    fn learn(&mut self, at: usize, rules: &Rules) -> bool {
        let (Some(row), Some(id)) = (self.tables.row, self.boot) else { return false };
        let Process { is_durable, epoch, .. } = &mut self.processes[at];
        if !row.quick && !*is_durable && rules.needs_mark {
            return false;
        }
        let quiet = row.quiet.min(row.longest);
        let known = epoch.filter(|known| known.id == id);
        let quiet = known.map_or(quiet, |known| known.quiet.min(quiet));
        *epoch = Some(Known { id, quiet, longest: row.longest });
        true
    }

    /// Whether the process may take the key.
    fn is_granted(&self, at: usize, hold: u8, rules: &Rules) -> bool {
        let Some(Known { id, quiet: 0, longest }) = self.processes[at].epoch else { return false };
        let is_present = self.boot == Some(id) || !rules.names_epoch;
        let is_free = match self.tables.held {
            None => self.tables.row.is_some() || !rules.needs_row,
            Some(left) => left == 0,
        };
        is_present && is_free && hold <= longest
    }

    fn grant(&mut self, at: usize, hold: u8) {
        self.commit(self.processes[at].is_durable, |tables| tables.held = Some(hold));
        self.processes[at].holds = hold;
    }

    /// The process raises the longest hold.
    fn raise(&mut self, at: usize, rules: &Rules) {
        let is_its = |known: &Known| self.boot == Some(known.id) && self.tables.row.is_some();
        if let Some(known) = self.processes[at].epoch.filter(is_its) {
            self.change_row(rules.raises_durably, |row| row.longest = LONG);
            self.processes[at].epoch = Some(Known { longest: LONG, ..known });
        }
    }

    fn pass(&mut self) {
        let older = self.older.iter_mut().map(|(tables, _)| tables);
        for tables in older.chain([&mut self.tables, &mut self.replica.0]) {
            tables.held = tables.held.map(|held| held.saturating_sub(1));
            if let Some(row) = &mut tables.row {
                row.quiet = row.quiet.saturating_sub(1);
            }
        }
        for process in &mut self.processes {
            process.holds = process.holds.saturating_sub(1);
            if let Some(known) = &mut process.epoch {
                known.quiet = known.quiet.saturating_sub(1);
            }
        }
        self.older.iter_mut().for_each(|(_, left)| *left -= 1);
        self.older.retain(|(_, left)| *left > 0);
    }

    fn fault(&self, loses: bool, happen: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        (next.faults, next.quiet_times) = (next.faults - 1, 0);
        next.may_have_lost |= loses;
        happen(&mut next);
        next
    }

    /// The server starts with these tables. All connections end.
    fn start(&mut self, tables: Tables, boot: Boot) {
        (self.tables, self.boot, self.older) = (tables, boot, Vec::new());
        self.processes.iter_mut().for_each(|process| process.step = Step::Make);
    }

    fn faults(&self, size: &Size) -> Vec<Self> {
        if self.faults == 0 {
            return Vec::new();
        }
        let is_lossy = self.processes.iter().any(|process| !process.is_durable);
        let crash = |tables: Tables| self.fault(is_lossy, |world| world.start(tables, None));
        let mut next: Vec<_> = self.older.iter().map(|(tables, _)| crash(*tables)).collect();
        next.extend([crash(self.tables), self.fault(is_lossy, |world| world.boot = None)]);
        // In order: all is written.
        next.push(self.fault(false, |world| world.start(self.tables, self.boot)));
        // A replica cannot know what it has not copied: the tables, or that holds have become longer.
        let longest = |tables: Tables| tables.row.map(|row| row.longest);
        let is_known = self.replica.0.are_made && longest(self.replica.0) == longest(self.tables);
        let (tables, boot) = self.replica;
        if is_known {
            next.push(self.fault(true, |world| {
                world.timeline += 1;
                world.start(tables, None);
            }));
        }
        // A copy has all rows, and is used by other processes only.
        if is_known && size.tells {
            next.push(self.fault(true, |world| {
                world.timeline += 1;
                world.start(tables, boot);
                world.processes.iter_mut().for_each(|process| process.epoch = None);
            }));
        }
        if !size.raises && self.tables.row.is_some() {
            next.push(self.fault(true, |world| world.commit(false, |tables| tables.row = None)));
        }
        // Without a key and an epoch, the tables are new.
        if !size.raises && self.tables.are_made && (self.tables.held.is_some() || self.boot.is_some()) {
            next.push(self.fault(true, |world| {
                world.commit(false, |tables| (tables.are_made, tables.row) = (false, None));
            }));
        }
        next
    }

    fn next(&self, rules: &Rules, size: &Size) -> Vec<Self> {
        let mut next = self.faults(size);
        let mut also = |happen: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            happen(&mut world);
            next.push(world);
        };
        also(&Self::pass);
        if size.has_replica && self.faults > 0 {
            also(&|world| world.replica = (world.tables, world.boot));
        }
        if self.tables.held == Some(0) && self.tables.row.is_some() {
            // The sweep.
            also(&|world| world.commit(false, |tables| tables.held = None));
        }
        for (at, process) in self.processes.iter().enumerate() {
            also(&|world| world.processes[at] = Process::new(process.is_durable));
            also(&|world| world.proceed(at, rules, size));
            if process.epoch.is_some() {
                // From an answer over another connection than that which opens the store.
                also(&|world| {
                    world.learn(at, rules);
                });
            }
            if size.raises {
                also(&|world| world.raise(at, rules));
            }
            for hold in HOLDS.into_iter().filter(|hold| size.raises || *hold == LONG) {
                if self.is_granted(at, hold, rules) {
                    also(&|world| world.grant(at, hold));
                }
            }
        }
        next
    }

    /// What no course may come to.
    fn wrong(&self, rules: &Rules, size: &Size) -> Option<Wrong> {
        let holders = self.processes.iter().filter(|process| process.holds > 0).count();
        let is_quiet = self.tables.row.is_some_and(|row| row.quiet > 0);
        match () {
            () if holders > 1 => Some(Wrong::TwoHolders),
            () if is_quiet && !self.may_have_lost => Some(Wrong::NeedlessQuiet),
            () if self.quiet_times > 1 => Some(Wrong::QuietAgain),
            () if !self.is_live(rules, size) => Some(Wrong::NobodyHolds),
            () => None,
        }
    }

    /// Whether each process is granted the key soon, if there are no more faults and each gets its turn.
    fn is_live(&self, rules: &Rules, size: &Size) -> bool {
        (0..self.processes.len()).all(|one| {
            let mut world = self.clone();
            for _ in 0..=2 * LONG {
                for _ in 0..8 {
                    (0..world.processes.len()).for_each(|at| world.proceed(at, rules, size));
                    if world.is_granted(one, self.first_longest, rules) {
                        return true;
                    }
                }
                world.pass();
            }
            false
        })
    }

    /// Makes courses meet that differ only in the ids of epochs, or in the order of processes.
    fn normalize(&mut self, hasher: &RandomState) {
        self.processes.sort_unstable_by_key(|process| hasher.hash_one(process));
        let known = self.processes.iter_mut().filter_map(|process| process.epoch.as_mut());
        let known = known.map(|known| &mut known.id);
        rename(self.boot.iter_mut().chain(&mut self.replica.1).chain(known));
    }
}

/// Explores all courses. Returns the number of states, or the last of a course that goes wrong.
fn courses(rules: &Rules, size: &Size) -> Result<usize, (Wrong, World)> {
    let hasher = RandomState::new();
    let next = |world: &World| {
        let mut all = world.next(rules, size);
        for world in &mut all {
            world.normalize(&hasher);
        }
        all
    };
    explore(World::new(size), next, |world| world.wrong(rules, size))
}

/// Two processes that wait for the disk, and a fault.
const DURABLE: Size =
    Size { are_durable: &[true, true], faults: 1, tells: true, has_replica: false, raises: false };
const QUICK: Size = Size { are_durable: &[true, false], ..DURABLE };

/// All of two faults, or of three processes.
fn many_sizes() -> Vec<Size> {
    let mut sizes = Vec::new();
    for (are_durable, faults) in [
        (&[true, true][..], 2),
        (&[true, false], 2),
        (&[false, false], 2),
        (&[true, true, false], 1),
        (&[true, false, false], 1),
    ] {
        for tells in [true, false] {
            for (has_replica, raises) in [(false, false), (false, true), (true, false), (true, true)] {
                sizes.push(Size { are_durable, faults, tells, has_replica, raises });
            }
        }
    }
    sizes
}

#[test]
fn no_course_gives_a_key_to_two() {
    let replica = Size { has_replica: true, ..DURABLE };
    let few = vec![replica, Size { tells: false, ..replica }, Size { raises: true, ..QUICK }, QUICK];
    for size in if explores_more() { many_sizes() } else { few } {
        match courses(&RULES, &size) {
            Ok(states) => println!("{size:?}: {states} states"),
            Err(wrong) => panic!("{size:?}: {wrong:?}"),
        }
    }
}

#[test]
fn each_rule_is_needed() {
    use Wrong::{NeedlessQuiet, NobodyHolds, QuietAgain, TwoHolders};
    let replica = Size { has_replica: true, ..DURABLE };
    let twice = Size { faults: 2, ..replica };
    let quick_twice = Size { faults: 2, ..QUICK };
    let raises = Size { raises: true, ..QUICK };
    let broken = [
        ("begins_with_mark", Rules { begins_with_mark: false, ..RULES }, replica, TwoHolders),
        ("names_timeline", Rules { names_timeline: false, ..RULES }, replica, TwoHolders),
        ("counts_timeline", Rules { counts_timeline: false, ..RULES }, replica, TwoHolders),
        ("keeps_quiet", Rules { keeps_quiet: false, ..RULES }, twice, TwoHolders),
        ("sets_timeline", Rules { sets_timeline: false, ..RULES }, replica, QuietAgain),
        ("marks_quick", Rules { marks_quick: false, ..RULES }, QUICK, NobodyHolds),
        ("both", Rules { marks_quick: false, needs_mark: false, ..RULES }, QUICK, TwoHolders),
        ("marks_durably", Rules { marks_durably: false, ..RULES }, QUICK, TwoHolders),
        ("trusts_new", Rules { trusts_new: false, ..RULES }, DURABLE, NeedlessQuiet),
        ("needs_mark", Rules { needs_mark: false, ..RULES }, quick_twice, TwoHolders),
        ("counts_table", Rules { counts_table: false, ..RULES }, twice, TwoHolders),
        ("counts_keys", Rules { counts_keys: false, ..RULES }, twice, TwoHolders),
        ("counts_epoch", Rules { counts_epoch: false, ..RULES }, twice, TwoHolders),
        ("ends_epoch", Rules { ends_epoch: false, ..RULES }, quick_twice, TwoHolders),
        ("needs_row", Rules { needs_row: false, ..RULES }, quick_twice, TwoHolders),
        ("names_epoch", Rules { names_epoch: false, ..RULES }, replica, TwoHolders),
        ("raises_durably", Rules { raises_durably: false, ..RULES }, raises, TwoHolders),
    ];
    for (name, rules, size, expected) in broken {
        let found = courses(&rules, &size).map_err(|(wrong, _)| wrong);
        assert_eq!(found, Err(expected), "{name}");
    }
}
