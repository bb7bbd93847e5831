//! A model of the epochs: every course of processes that open a store statement by statement, use it, stop for any time
//! and end, beside crashes that lose what is not on the disk, failovers, and rows and tables that are deleted.
//!
//! Each statement is one event, and each rule is then broken. `LOCKER_MODEL=full` explores more processes and faults:
//! `LOCKER_MODEL=full cargo test --release -p locker-mysql epoch::model`.

use locker_harness::{explore, explores_more, free_number, rename};
use std::{
    hash::{BuildHasher, RandomState},
    mem::take,
};

/// Two holds, and how long a server that does not wait for the disk may take to write, in units of time.
const HOLDS: [u8; 2] = [1, 2];
const LONG: u8 = 2;
const WRITTEN: u8 = 1;

/// The rules of the store, and what it assumes of the server.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is broken alone")]
struct Rules {
    /// `locker_meta` is made together with its row.
    makes_row: bool,
    /// It is on the disk then, without its row.
    makes_durably: bool,
    /// The epoch of new tables is marked before `locker_meta` is there.
    marks_new_first: bool,
    /// The quiet time is committed before the epoch is marked.
    begins_first: bool,
    /// An epoch is one only with the row of its server.
    names_row: bool,
    /// Another server begins a quiet time.
    counts_server: bool,
    /// A server that may lose what it answers marks that.
    marks_quick: bool,
    /// Nothing is granted before this is on the disk, or the longest hold.
    waits_written: bool,
    /// Also by others: the row says for how long.
    all_wait_written: bool,
    /// The process that raises the longest hold marks that.
    raises_with_mark: bool,
    /// A write names the epoch.
    names_epoch: bool,
    /// The epoch is that of this server.
    names_server: bool,
}

const RULES: Rules = Rules {
    makes_row: true,
    makes_durably: true,
    marks_new_first: true,
    begins_first: true,
    names_row: true,
    counts_server: true,
    marks_quick: true,
    waits_written: true,
    all_wait_written: true,
    raises_with_mark: true,
    names_epoch: true,
    names_server: true,
};

/// The column `server`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Origin {
    Remade,
    Of(u8),
}

/// The row of `locker_meta`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Meta {
    quick: u8,
    origin: Origin,
    /// How long nothing is granted.
    quiet: u8,
    longest: u8,
}

/// The table `locker_meta`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum MetaTable {
    #[default]
    Missing,
    Empty,
    Row(Meta),
}

/// What a disk keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Tables {
    meta: MetaTable,
    /// The key, and how long it is held.
    held: Option<u8>,
}

impl Tables {
    fn row(self) -> Option<Meta> {
        match self.meta {
            MetaTable::Row(row) => Some(row),
            MetaTable::Empty | MetaTable::Missing => None,
        }
    }

    fn row_mut(&mut self) -> Option<&mut Meta> {
        match &mut self.meta {
            MetaTable::Row(row) => Some(row),
            MetaTable::Empty | MetaTable::Missing => None,
        }
    }
}

/// The row of `locker_boot`: its id and server.
type Boot = Option<(u8, u8)>;

/// What a process does next to open the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Format,
    MarkNew,
    MakeMeta,
    MakeRow { is_new: bool },
    SayQuick,
    AskQuick,
    WaitWritten { left: u8, longest: u8 },
    AskMarks,
    Packet(&'static [Statement]),
    Sample,
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Statement {
    Begin,
    Unmark,
    Mark,
}

/// What a process knows of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Known {
    id: u8,
    quiet: u8,
    longest: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Process {
    step: Step,
    epoch: Option<Known>,
    /// The epoch in which it has raised the longest hold, and for how long it waits.
    raises: Option<(u8, u8)>,
    /// How long it holds the key.
    holds: u8,
}

const NEW: Process = Process { step: Step::Format, epoch: None, raises: None, holds: 0 };

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    server: u8,
    is_lossy: bool,
    tables: Tables,
    boot: Boot,
    /// What a crash may return to, and for how long still.
    older: Vec<(Tables, u8)>,
    /// What another server has copied.
    replica: (Tables, Boot),
    processes: Vec<Process>,
    faults: u8,
    /// The longest hold of new tables.
    first_longest: u8,
    /// Whether something happened after which grants may be lost.
    may_have_lost: bool,
    /// How many quiet times have begun since the last fault or end of a process.
    quiet_times: u8,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    processes: usize,
    faults: u8,
    /// Whether the server does not wait for the disk, and still does not after a crash.
    is_lossy: [bool; 2],
    /// Whether there is a replica, which may be promoted.
    has_replica: bool,
    /// Whether holds become longer. Otherwise the row may be lost, and what it says of the longest.
    raises: bool,
}

fn wait(rules: &Rules) -> u8 {
    if rules.waits_written { WRITTEN } else { 0 }
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
    /// Whether a row of this server marks the epoch.
    fn is_marked(&self, rules: &Rules) -> bool {
        self.boot.is_some_and(|(_, server)| server == self.server || !rules.names_server)
    }

    /// Whether the epoch may be used.
    fn is_begun(&self, rules: &Rules) -> bool {
        let is_its = |row: Meta| row.origin == Origin::Of(self.server) || !rules.names_row;
        self.is_marked(rules) && self.row().is_some_and(is_its)
    }

    fn row(&self) -> Option<Meta> {
        self.tables.row()
    }

    /// Changes the tables. The change may not be on the disk yet.
    fn commit(&mut self, change: impl FnOnce(&mut Tables)) {
        let before = self.tables;
        change(&mut self.tables);
        let older = (before, WRITTEN);
        if self.is_lossy && self.tables != before && !self.older.contains(&older) {
            self.older.push(older);
        }
    }

    fn change_row(&mut self, change: impl FnOnce(&mut Meta)) {
        self.commit(|tables| {
            if let Some(row) = tables.row_mut() {
                change(row);
            }
        });
    }

    fn new_id(&self) -> u8 {
        let of = |boot: Boot| boot.map(|(id, _)| id);
        let known =
            |process: &Process| [process.epoch.map(|known| known.id), process.raises.map(|(id, _)| id)];
        let known = self.processes.iter().flat_map(known);
        free_number(known.chain([of(self.boot), of(self.replica.1)]).flatten())
    }

    fn mark(&mut self) {
        let is_its = self.boot.is_some_and(|(_, server)| server == self.server);
        if !is_its {
            self.boot = Some((self.new_id(), self.server));
        }
    }

    /// The process does what is next to open the store.
    fn proceed(&mut self, at: usize, rules: &Rules) {
        let step = self.processes[at].step.clone();
        self.processes[at].step = self.after(&step, at, rules);
    }

    fn after(&mut self, step: &Step, at: usize, rules: &Rules) -> Step {
        let is_lossy = self.is_lossy;
        let has_keys = self.tables.held.is_some();
        match step {
            Step::Format => match self.tables.meta {
                MetaTable::Missing if rules.marks_new_first => Step::MarkNew,
                MetaTable::Missing => Step::MakeMeta,
                MetaTable::Empty => Step::MakeRow { is_new: false },
                MetaTable::Row(_) => Step::SayQuick,
            },
            Step::MarkNew => {
                if !has_keys && self.tables.meta == MetaTable::Missing {
                    self.mark();
                }
                Step::MakeMeta
            }
            Step::MakeMeta => {
                if self.tables.meta != MetaTable::Missing {
                    return Step::SayQuick;
                }
                self.commit(|tables| tables.meta = MetaTable::Empty);
                if rules.makes_durably {
                    self.older.clear();
                }
                if !rules.makes_row {
                    return Step::MakeRow { is_new: !has_keys };
                }
                self.make_row(!has_keys, rules);
                Step::SayQuick
            }
            Step::MakeRow { is_new } => {
                self.make_row(*is_new, rules);
                Step::SayQuick
            }
            Step::SayQuick if is_lossy && rules.marks_quick => {
                self.change_row(|row| {
                    if row.quick == 0 {
                        row.quick = 2;
                    }
                });
                Step::AskQuick
            }
            Step::AskQuick => match self.row().filter(|row| row.quick == 2) {
                Some(Meta { longest, .. }) => Step::WaitWritten { left: wait(rules), longest },
                None => Step::AskMarks,
            },
            Step::SayQuick => Step::AskMarks,
            Step::WaitWritten { longest, .. } => {
                self.is_written(*longest);
                Step::AskMarks
            }
            Step::AskMarks => {
                use Statement::{Begin, Mark, Unmark};
                match () {
                    () if self.tables.meta == MetaTable::Missing => Step::Format,
                    () if self.is_begun(rules) => Step::Sample,
                    () if self.boot.is_some() => Step::Packet(&[Unmark, Begin, Mark]),
                    () if rules.begins_first => Step::Packet(&[Begin, Mark]),
                    () => Step::Packet(&[Mark, Begin]),
                }
            }
            Step::Packet(statements) => {
                match statements[0] {
                    Statement::Begin => self.begin(rules),
                    Statement::Unmark => self.boot = None,
                    Statement::Mark => self.mark(),
                }
                let rest = &statements[1..];
                if rest.is_empty() { Step::Sample } else { Step::Packet(rest) }
            }
            Step::Sample | Step::Open => self.sample(at, rules),
        }
    }

    fn make_row(&mut self, is_new: bool, rules: &Rules) {
        if self.tables.meta != MetaTable::Empty {
            return;
        }
        let origin = if is_new { Origin::Of(self.server) } else { Origin::Remade };
        let quick = u8::from(self.is_lossy && rules.marks_quick);
        let row = Meta { quick, origin, quiet: 0, longest: self.first_longest };
        self.commit(|tables| tables.meta = MetaTable::Row(row));
    }

    fn is_written(&mut self, longest: u8) {
        self.change_row(|row| {
            if row.quick == 2 && row.longest == longest {
                row.quick = 1;
            }
        });
    }

    fn begin(&mut self, rules: &Rules) {
        if self.is_marked(rules) {
            return;
        }
        let (server, is_lossy) = (self.server, self.is_lossy);
        let Some(row) = self.row() else { return };
        let is_other = rules.counts_server && row.origin != Origin::Of(server);
        let is_quiet = is_other || rules.marks_quick && (row.quick != 0 || is_lossy);
        self.quiet_times += u8::from(is_quiet);
        self.change_row(|row| {
            row.origin = Origin::Of(server);
            row.quiet = if is_quiet { row.longest } else { row.quiet.min(row.longest) };
        });
    }

    /// The process learns of the state of the store. Returns what it does next.
    fn sample(&mut self, at: usize, rules: &Rules) -> Step {
        let Some(row) = self.row() else { return Step::Format };
        let must_be_quick = self.is_lossy && rules.marks_quick;
        let is_known = row.quick == 1 || row.quick == 2 && !rules.all_wait_written || !must_be_quick;
        let Some((id, _)) = self.boot.filter(|_| self.is_begun(rules)) else { return Step::Format };
        let known = self.processes[at].epoch.filter(|known| known.id == id);
        if !is_known {
            return if row.quick == 2 && known.is_some() { Step::Open } else { Step::Format };
        }
        let quiet = known.map_or(row.quiet, |known| known.quiet.min(row.quiet));
        self.processes[at].epoch = Some(Known { id, quiet, longest: row.longest });
        Step::Open
    }

    fn is_in_epoch(&self, id: u8, rules: &Rules) -> bool {
        self.is_marked(rules) && self.boot.is_some_and(|(marked, _)| marked == id)
    }

    /// Whether the process may take the key.
    fn is_granted(&self, at: usize, hold: u8, rules: &Rules) -> bool {
        let Some(Known { id, quiet: 0, longest }) = self.processes[at].epoch else { return false };
        let is_its = self.is_in_epoch(id, rules) || !rules.names_epoch;
        is_its && hold <= longest && self.tables.held.unwrap_or(0) == 0
    }

    fn grant(&mut self, at: usize, hold: u8) {
        self.commit(|tables| tables.held = Some(hold));
        self.processes[at].holds = hold;
    }

    /// The process raises the longest hold, or has waited.
    fn raise(&mut self, at: usize, rules: &Rules) {
        let Some(known) = self.processes[at].epoch else { return };
        let is_lossy = self.is_lossy;
        match self.processes[at].raises.take() {
            Some((id, _)) => {
                if is_lossy {
                    self.is_written(LONG);
                }
                if let Some(known) = self.processes[at].epoch.as_mut().filter(|known| known.id == id) {
                    known.longest = LONG;
                }
            }
            None if self.is_in_epoch(known.id, rules) => {
                self.change_row(|row| {
                    if row.longest < LONG {
                        row.longest = LONG;
                        row.quick = if is_lossy && rules.raises_with_mark { 2 } else { row.quick };
                    }
                });
                self.processes[at].raises = Some((known.id, if is_lossy { wait(rules) } else { 0 }));
            }
            None => {}
        }
    }

    fn pass(&mut self) {
        let older = self.older.iter_mut().map(|(tables, _)| tables);
        for tables in older.chain([&mut self.tables, &mut self.replica.0]) {
            tables.held = tables.held.map(|held| held.saturating_sub(1));
            if let Some(row) = tables.row_mut() {
                row.quiet = row.quiet.saturating_sub(1);
            }
        }
        for process in &mut self.processes {
            process.holds = process.holds.saturating_sub(1);
            if let Some(known) = &mut process.epoch {
                known.quiet = known.quiet.saturating_sub(1);
            }
            if let Step::WaitWritten { left, .. } = &mut process.step {
                *left = left.saturating_sub(1);
            }
            if let Some((_, left)) = &mut process.raises {
                *left = left.saturating_sub(1);
            }
        }
        self.older.iter_mut().for_each(|(_, left)| *left -= 1);
        self.older.retain(|(_, left)| *left > 0);
    }

    /// All connections end.
    fn disconnect(&mut self) {
        for process in &mut self.processes {
            (process.step, process.raises) = (Step::Format, None);
        }
    }

    fn fault(&self, loses: bool, happen: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        next.faults -= 1;
        next.quiet_times = 0;
        next.may_have_lost |= loses;
        happen(&mut next);
        next
    }

    fn faults(&self, size: &Size) -> Vec<Self> {
        if self.faults == 0 {
            return Vec::new();
        }
        let crash = |tables: Tables| {
            self.fault(self.is_lossy, |world| {
                (world.tables, world.boot, world.older) = (tables, None, Vec::new());
                world.is_lossy = size.is_lossy[1];
                world.disconnect();
            })
        };
        let mut next = vec![crash(self.tables)];
        next.extend(self.older.iter().map(|(tables, _)| crash(*tables)));
        // A replica cannot know what it has not copied: the tables, or that holds have become longer.
        let longest = |tables: Tables| tables.row().map(|row| row.longest);
        let is_known =
            self.replica.0.meta != MetaTable::Missing && longest(self.replica.0) == longest(self.tables);
        let boots: &[bool] = if is_known { &[true, false] } else { &[] };
        for &has_boot in boots {
            next.push(self.fault(true, |world| {
                let (tables, boot) = take(&mut world.replica);
                (world.tables, world.boot, world.older) = (tables, boot.filter(|_| has_boot), Vec::new());
                world.server += 1;
                world.replica = (world.tables, world.boot);
                world.disconnect();
            }));
        }
        next.push(self.fault(self.is_lossy, |world| world.boot = None));
        if size.raises {
            return next;
        }
        for takes_boot in [false, true] {
            if self.row().is_some() {
                next.push(self.fault(true, |world| {
                    world.commit(|tables| tables.meta = MetaTable::Empty);
                    world.boot = world.boot.filter(|_| !takes_boot);
                }));
            }
            // Without a key, the tables are new.
            if self.tables.meta != MetaTable::Missing && self.tables.held.is_some() {
                next.push(self.fault(true, |world| {
                    world.commit(|tables| tables.meta = MetaTable::Missing);
                    world.older.clear();
                    world.boot = world.boot.filter(|_| !takes_boot);
                }));
            }
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
        if self.server > 1 {
            // The replica that was promoted still gets the row of its primary.
            also(&|world| {
                let origin = Origin::Of(world.server - 1);
                world.change_row(|row| (row.origin, row.quiet) = (origin, 0));
                world.quiet_times = 0;
            });
        }
        if self.tables.held == Some(0) && self.row().is_some() {
            // The sweep, which changes the row, too.
            also(&|world| world.commit(|tables| tables.held = None));
        }
        for (at, process) in self.processes.iter().enumerate() {
            also(&|world| {
                world.processes[at] = NEW;
                world.quiet_times = 0;
            });
            if !matches!(process.step, Step::WaitWritten { left: 1.., .. }) {
                also(&|world| world.proceed(at, rules));
            }
            if process.epoch.is_some() {
                // From an answer over another connection than that which opens the store.
                also(&|world| {
                    world.sample(at, rules);
                });
            }
            if size.raises && !matches!(process.raises, Some((_, 1..))) {
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
    fn wrong(&self) -> Option<Wrong> {
        let holders = self.processes.iter().filter(|process| process.holds > 0).count();
        let is_quiet = self.row().is_some_and(|row| row.quiet > 0);
        match () {
            () if holders > 1 => Some(Wrong::TwoHolders),
            () if is_quiet && !self.may_have_lost => Some(Wrong::NeedlessQuiet),
            () if usize::from(self.quiet_times) > 2 * self.processes.len() => Some(Wrong::QuietAgain),
            () => None,
        }
    }

    /// Whether each process is granted the key soon, if there are no more faults and each gets its turn.
    fn is_live(&self, rules: &Rules) -> bool {
        (0..self.processes.len()).all(|one| {
            let mut world = self.clone();
            for _ in 0..2 * (LONG + WRITTEN) {
                for _ in 0..12 {
                    for at in 0..world.processes.len() {
                        if !matches!(world.processes[at].step, Step::WaitWritten { left: 1.., .. }) {
                            world.proceed(at, rules);
                        }
                    }
                    if world.is_granted(one, self.first_longest, rules) {
                        return true;
                    }
                }
                world.pass();
            }
            false
        })
    }
}

/// Explores all courses. Returns the number of states, or the last of a course that goes wrong.
fn courses(rules: &Rules, size: &Size) -> Result<usize, (Wrong, World)> {
    let first = World {
        server: 1,
        is_lossy: size.is_lossy[0],
        tables: Tables::default(),
        boot: None,
        older: Vec::new(),
        replica: <_>::default(),
        processes: vec![NEW; size.processes],
        faults: size.faults,
        first_longest: if size.raises { HOLDS[0] } else { LONG },
        may_have_lost: false,
        quiet_times: 0,
    };
    let hasher = RandomState::new();
    let next = |world: &World| {
        let mut all = world.next(rules, size);
        for next in &mut all {
            next.processes.sort_unstable_by_key(|process| hasher.hash_one(process));
            next.rename();
        }
        all
    };
    let is_stuck = |world: &World| (!world.is_live(rules)).then_some(Wrong::NobodyHolds);
    explore(first, next, |world| world.wrong().or_else(|| is_stuck(world)))
}

impl World {
    /// Gives the ids of epochs and servers names by where they are, so that equal courses meet.
    fn rename(&mut self) {
        let boots = [&mut self.boot, &mut self.replica.1].into_iter().flatten().map(|(id, _)| id);
        let known = self.processes.iter_mut().flat_map(|process| {
            let raised = process.raises.as_mut().map(|(id, _)| id);
            process.epoch.as_mut().map(|known| &mut known.id).into_iter().chain(raised)
        });
        rename(boots.chain(known));
    }
}

/// Two processes and a fault, with a server that waits for the disk, or one that does not until it is started anew.
const DURABLE: Size =
    Size { processes: 2, faults: 1, is_lossy: [false, false], has_replica: false, raises: false };
const LOSSY: Size = Size { is_lossy: [true, false], ..DURABLE };

/// All of up to two faults, or of three processes.
fn many_sizes() -> Vec<Size> {
    let mut sizes = Vec::new();
    for (processes, faults) in [(2, 1), (2, 2), (3, 1)] {
        for is_lossy in [[false, false], [true, true], [true, false]] {
            for (has_replica, raises) in [(false, false), (false, true), (true, false), (true, true)] {
                sizes.push(Size { processes, faults, is_lossy, has_replica, raises });
            }
        }
    }
    sizes
}

#[test]
fn no_course_gives_a_key_to_two() {
    let few = vec![Size { has_replica: true, ..DURABLE }, Size { raises: true, ..DURABLE }, LOSSY];
    for size in if explores_more() { many_sizes() } else { few } {
        match courses(&RULES, &size) {
            Ok(states) => println!("{size:?}: {states} states"),
            Err(wrong) => panic!("{size:?}: {wrong:?}"),
        }
    }
}

#[test]
fn each_rule_is_needed() {
    use Wrong::{NeedlessQuiet, TwoHolders};
    let replica = Size { has_replica: true, ..DURABLE };
    let raises = Size { raises: true, ..LOSSY };
    let broken = [
        ("makes_row", Rules { makes_row: false, ..RULES }, DURABLE, NeedlessQuiet),
        ("makes_durably", Rules { makes_durably: false, ..RULES }, LOSSY, TwoHolders),
        ("marks_new_first", Rules { marks_new_first: false, ..RULES }, LOSSY, NeedlessQuiet),
        ("begins_first", Rules { begins_first: false, ..RULES }, LOSSY, TwoHolders),
        ("counts_server", Rules { counts_server: false, ..RULES }, replica, TwoHolders),
        ("marks_quick", Rules { marks_quick: false, ..RULES }, LOSSY, TwoHolders),
        ("waits_written", Rules { waits_written: false, ..RULES }, raises, TwoHolders),
        ("all_wait_written", Rules { all_wait_written: false, ..RULES }, raises, TwoHolders),
        ("raises_with_mark", Rules { raises_with_mark: false, ..RULES }, raises, TwoHolders),
        ("names_row", Rules { names_row: false, ..RULES }, replica, TwoHolders),
        ("names_epoch", Rules { names_epoch: false, ..RULES }, LOSSY, TwoHolders),
        ("names_server", Rules { names_server: false, ..RULES }, replica, TwoHolders),
    ];
    for (name, rules, size, expected) in broken {
        let found = courses(&rules, &size).map_err(|(wrong, _)| wrong);
        assert_eq!(found, Err(expected), "{name}");
    }
}
