//! Every course of events, up to a bound, of clients at two servers that replicate asynchronously.
//!
//! The servers run the step of the lock within the rules of strict mode. At any moment the master's data may be copied
//! to the replica, the replica may become the master, and the former master may go on alone for a while, become a
//! replica, or start again with the data of the replica. Requests arrive late, twice, at either master, or without a
//! reply. No two clients may believe at the same time that they hold. Without one of the rules, some do.

mod data;
mod world;

use super::reference::{Bug, Rules};
use std::{
    collections::{HashSet, VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};
use world::{Action, World};

/// How the server knows that it may have lost writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    ReplicationId,
    RunId,
}

/// What may happen, and how often. Times are in seconds.
#[derive(Clone, Copy, Debug)]
struct Setting {
    clients: usize,
    lease: u64,
    /// The longest lease of the first client's locker, which it uses, if it is another.
    first_longest: Option<u64>,
    /// Whether the first client has a name for its holds.
    is_named: bool,
    longest: u64,
    slack: u64,
    /// How long a former master goes on.
    isolation: u64,
    /// How far the clock of the second server is behind that of the first.
    behind: i64,
    sign: Sign,
    bug: Option<Bug>,
    end: u64,
    /// Whether the record is replicated before a failover.
    must_replicate: bool,
    /// The most messages under way.
    network: usize,
    attempts: u8,
    /// How often a client asks again.
    asks: u8,
    renewals: u8,
    releases: u8,
    copies: u8,
    replications: u8,
    failovers: u8,
    restarts: u8,
    flushes: u8,
}

impl Setting {
    const PLAIN: Self = Self {
        clients: 2,
        lease: 2,
        first_longest: None,
        is_named: false,
        longest: 2,
        slack: 1,
        isolation: 1,
        behind: 0,
        sign: Sign::ReplicationId,
        bug: None,
        end: 5,
        must_replicate: false,
        network: 2,
        attempts: 1,
        asks: 0,
        renewals: 1,
        releases: 0,
        copies: 0,
        replications: 1,
        failovers: 1,
        restarts: 0,
        flushes: 0,
    };

    fn rules(&self, client: usize) -> Rules {
        let longest = self.first_longest.filter(|_| client == 0).unwrap_or(self.longest);
        Rules { longest: Duration::from_secs(longest), slack: Duration::from_secs(self.slack), bug: self.bug }
    }

    fn lease(&self, client: usize) -> u64 {
        self.first_longest.filter(|_| client == 0).unwrap_or(self.lease)
    }
}

/// Returns the number of states, or the actions that lead to two holders.
fn explore(setting: &Setting) -> Result<usize, Vec<Action>> {
    let first = World::new(setting);
    let (mut seen, mut steps) = (HashSet::new(), vec![(0, Action::Second)]);
    let mut queue = VecDeque::from([(0, first)]);
    while let Some((number, world)) = queue.pop_front() {
        for action in world.actions(setting) {
            let mut next = world.clone();
            next.take(setting, action);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if !seen.insert(hasher.finish()) {
                continue;
            }
            steps.push((number, action));
            if next.overlap() {
                let mut trace = Vec::new();
                let mut at = steps.len() - 1;
                while at > 0 {
                    trace.push(steps[at].1);
                    at = steps[at].0;
                }
                trace.reverse();
                return Err(trace);
            }
            queue.push_back((steps.len() - 1, next));
        }
    }
    Ok(seen.len())
}

/// Requires that nobody overlaps, and that some do with each of the bugs.
#[track_caller]
fn assert_excludes(setting: Setting, bugs: &[Setting]) {
    match explore(&setting) {
        Ok(states) => assert!(states > 4_000, "{states} states are no test"),
        Err(trace) => panic!("two hold after {trace:?}"),
    }
    for bug in bugs {
        let found = explore(bug).is_err();
        assert!(found, "nobody overlaps with {bug:?}");
    }
}

/// The former master may go on for as long as the slack.
#[test]
fn leases_exclude_each_other_over_a_failover() {
    let setting = Setting { asks: 1, end: 4, ..Setting::PLAIN };
    let with = |bug| Setting { bug: Some(bug), ..setting };
    let bugs = [
        with(Bug::NeverQuiet),
        with(Bug::RenewsAll),
        Setting { slack: 0, ..setting },
        // A lease that is longer than all lockers say.
        Setting { lease: 4, ..setting },
    ];
    assert_excludes(setting, &bugs);
}

#[test]
fn leases_exclude_each_other_though_clocks_differ() {
    for behind in [1, -1] {
        let setting = Setting { isolation: 0, behind, asks: 1, end: 4, ..Setting::PLAIN };
        // A clock that is ahead ends replicated holds early, which the quiet time covers.
        let bugs = [Setting { slack: 0, ..setting }];
        assert_excludes(setting, if behind > 0 { &bugs } else { &[] });
    }
}

/// Releases that come late, twice, and at either server.
#[test]
fn leases_exclude_each_other_though_requests_are_repeated() {
    let setting = Setting { releases: 1, copies: 1, renewals: 0, end: 3, ..Setting::PLAIN };
    assert_excludes(setting, &[]);
}

/// A hold that was released at the former master does not come alive again.
#[test]
fn name_does_not_get_a_released_hold_again() {
    let setting = Setting { is_named: true, attempts: 2, releases: 1, renewals: 0, end: 3, ..Setting::PLAIN };
    assert_excludes(setting, &[Setting { bug: Some(Bug::GrantsAgain), ..setting }]);
}

#[test]
fn late_release_hands_nothing_over() {
    let setting = Setting { clients: 3, releases: 1, copies: 1, end: 0, isolation: 0, ..Setting::PLAIN };
    assert_excludes(setting, &[Setting { bug: Some(Bug::HandsOver), ..setting }]);
}

/// The same server becomes a replica, loses its data, and is the master again.
#[test]
fn demoted_master_that_is_promoted_again_has_lost_its_data() {
    let setting = Setting { failovers: 2, replications: 0, isolation: 0, ..Setting::PLAIN };
    let bugs = [
        Setting { sign: Sign::RunId, ..setting },
        Setting { bug: Some(Bug::LaterEpochOpensEarly), ..setting },
    ];
    assert_excludes(setting, &bugs);
    assert_excludes(Setting { isolation: 1, ..setting }, &[]);
}

#[test]
fn server_starts_again_with_older_data() {
    let setting = Setting { failovers: 0, restarts: 1, ..Setting::PLAIN };
    assert_excludes(setting, &[Setting { bug: Some(Bug::NeverQuiet), ..setting }]);
}

#[test]
fn data_without_a_record_are_of_another_epoch() {
    let setting = Setting { failovers: 0, replications: 0, flushes: 1, ..Setting::PLAIN };
    assert_excludes(setting, &[Setting { bug: Some(Bug::MissingRecordIsOpen), ..setting }]);
}

/// The limit of another locker is in the record that the replica has.
#[test]
fn largest_limit_of_all_lockers_counts() {
    let setting = Setting {
        first_longest: Some(5),
        isolation: 0,
        asks: 1,
        attempts: 1,
        end: 6,
        must_replicate: true,
        ..Setting::PLAIN
    };
    assert_excludes(setting, &[Setting { bug: Some(Bug::ForgetsLongest), ..setting }]);
}
