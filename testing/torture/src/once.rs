//! Calls that are made once: what their bodies do and what their callers get is counted in the resource.
//!
//! With `after_crash = "refuse"` a record sees at most one effect, although workers are killed in their bodies and
//! between effect and success, and all callers get the result of that one.

use crate::{clock::now, resource::Resource};
use fastrand::Rng;
use locker_harness::RedisServer;
use locker_runtime::{
    Error, Locker,
    private::{Began, Kept, enter_blocking},
};
use std::{collections::BTreeSet, time::Duration};

/// The time after which all callers change to the next record.
const ROUND: u64 = 300_000_000;
/// The longest time between an effect and its success. Faults hit a run while it lasts.
const LONGEST: u64 = 250;

/// Longer than a run of the program.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The body of a call. Some fail before their effect.
pub(crate) fn call(locker: &Locker, name: &str, resource: &mut Resource, rng: &mut Rng, patience: Duration) {
    let name = format!("{name}:{}", now() / ROUND);
    let request = locker.once(&name).keep(KEEP).timeout(patience).refuse_after_crash();
    match enter_blocking(request) {
        Ok(Began::Runs(run)) if rng.u8(..4) == 0 => drop(run.end_with(None)),
        Ok(Began::Runs(run)) => {
            std::thread::sleep(Duration::from_millis(rng.u64(..6)));
            let result = rng.u64(..);
            resource.add_effect(&name, result);
            std::thread::sleep(Duration::from_millis(rng.u64(..LONGEST)));
            let kept = Ok::<_, Error>(result).kept(&run);
            if run.end_with(kept).is_ok() {
                resource.add_result(&name, result);
            }
        }
        Ok(Began::Done(done)) => match done.result() {
            Ok(result) => resource.add_result(&name, result),
            Err(error) => resource.add_problem(&error.to_string()),
        },
        // Refused after a crash, not in time, or without its store.
        Err(_) => {}
    }
}

/// Returns what is wrong with the effects and results of all records.
pub(crate) fn read(server: &RedisServer) -> Vec<String> {
    let mut problems: Vec<String> = server.ask("LRANGE", &["once-problems", "0", "-1"]);
    let effects: Vec<String> = server.ask("KEYS", &["once-effects:*"]);
    let mut shared = 0;
    for key in &effects {
        let name = &key["once-effects:".len()..];
        let done: Vec<String> = server.ask("LRANGE", &[key, "0", "-1"]);
        let got: BTreeSet<String> =
            server.ask::<Vec<String>>("SMEMBERS", &[&format!("once-results:{name}")]).into_iter().collect();
        if done.len() > 1 {
            problems.push(format!("{name} had {} effects: {done:?}", done.len()));
        }
        if got.len() > 1 || got.iter().any(|result| !done.contains(result)) {
            problems.push(format!("{name} gave the results {got:?} of the effects {done:?}"));
        }
        shared += u64::from(!got.is_empty());
    }
    println!("{} records had an effect, of which {shared} gave a result", effects.len());
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_effect_and_foreign_result_are_found() {
        let Some(server) = RedisServer::start() else { return };
        let mut resource = Resource::open(&server.url()).unwrap();
        resource.add_effect("a", 1);
        resource.add_result("a", 1);
        assert_eq!(read(&server), [""; 0]);
        resource.add_effect("a", 2);
        assert_eq!(read(&server), ["a had 2 effects: [\"1\", \"2\"]"]);
        resource.add_effect("b", 3);
        resource.add_result("b", 4);
        assert!(read(&server).iter().any(|problem| problem.contains("b gave the results {\"4\"}")));
    }

    #[test]
    fn calls_of_one_record_share_a_result() {
        let Some(server) = RedisServer::start() else { return };
        let (mut resource, mut rng) = (Resource::open(&server.url()).unwrap(), Rng::with_seed(7));
        let locker = Locker::memory();
        for _ in 0..40 {
            call(&locker, "once:0", &mut resource, &mut rng, KEEP);
        }
        let results: Vec<String> = server.ask("KEYS", &["once-results:once:0:*"]);
        assert!(!results.is_empty());
        assert_eq!(read(&server), [""; 0]);
    }
}
