//! Two or three locks in any order, each taken while those before it are held: by a body, as functions with attributes
//! hold them, or by a guard that the request names.

use crate::{
    holds::{Held, Holds},
    kinds::Kind,
    record::Record,
    resource::Resource,
};
use fastrand::Rng;
use locker_runtime::{ErrorKind, Locker, Result, private};
use std::time::Duration;

/// No caller waits for so long if each circle is broken.
const PATIENT: Duration = Duration::from_secs(300);

/// Takes some of these locks, changes what they protect, and releases them.
pub(crate) fn nest(
    locker: &Locker,
    record: &Record,
    mut names: Vec<String>,
    resource: &mut Resource,
    rng: &mut Rng,
) -> Option<()> {
    rng.shuffle(&mut names);
    names.truncate(rng.usize(2..=3));
    let mut levels: Vec<(Holds<'_>, Held)> = Vec::new();
    for name in names {
        // A caller that gives up while it is in a circle ends that circle, and asks for another lock.
        let patience = if rng.u8(..4) > 0 { PATIENT } else { Duration::from_millis(rng.u64(..6_000)) };
        let mut holds = Holds::begin(record, Kind::Nested, std::slice::from_ref(&name), 1, patience);
        holds.inside(levels.iter().map(|(holds, _)| holds));
        holds.say(|_| ())?;
        holds.ask();
        match acquire(locker, &name, &levels, patience, rng) {
            Ok(held) => {
                holds.enter(&held.fences());
                holds.change(&held, resource, true, Duration::ZERO)?;
                levels.push((holds, held));
            }
            Err(error) => {
                holds.miss(error.kind())?;
                if error.kind() == ErrorKind::TimedOut && patience == PATIENT {
                    record.problem(format!("a patient caller timed out: {error}"))?;
                }
                if rng.bool() {
                    break;
                }
            }
        }
    }
    while let Some((mut holds, held)) = levels.pop() {
        holds.change(&held, resource, true, Duration::from_millis(rng.u64(..4)))?;
        holds.release(held)?;
    }
    Some(())
}

/// Waits for one lock. The bodies around this call are known, the guards are named.
fn acquire(
    locker: &Locker,
    name: &str,
    levels: &[(Holds<'_>, Held)],
    patience: Duration,
    rng: &mut Rng,
) -> Result<Held> {
    let mut request = Kind::Nested.ask(locker, name, 1).timeout(patience);
    for (_, held) in levels {
        if let Held::One(guard) = held {
            request = request.holding(guard);
        }
    }
    if rng.bool() {
        return private::acquire_blocking(request).map(Held::Body);
    }
    request.acquire_blocking().map(Held::One)
}
