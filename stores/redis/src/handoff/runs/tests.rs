use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// A run of the attempts 1 to 3, with `fence` as the last one.
fn run(fence: u64) -> Run {
    let members: Vec<_> = (1..=3).map(|id| format!("{}:10000", Id::from(id))).collect();
    Run::read(&members.join(","), fence).unwrap()
}

/// A run that the server has confirmed.
fn begun() -> (Runs, Key, Grant) {
    let (runs, key) = (Runs::default(), Key::new("lock:a"));
    let (grant, before) = runs.begin(&key, &run(9)).unwrap();
    assert_eq!((grant, before), (Grant { run: run(9).id(), fence: 9 }, None));
    assert_eq!(runs.taken(&key, grant, None), Next::Gone, "the server has not confirmed it");
    runs.confirmed(&key, grant, Timestamp::now(), LEASE);
    (runs, key, grant)
}

impl Runs {
    /// Passes the lock on to the next member.
    fn taken(&self, key: &Key, grant: Grant, from: Option<Id>) -> Next {
        self.next(key, grant, from, |_| true, |_, _| true)
    }
}

fn holds(next: Next) -> (Id, u64) {
    let Next::Holds { member, .. } = next else { panic!("{next:?}") };
    (member.id, member.fence)
}

/// Texts come in messages that anybody may have sent.
#[test]
fn text_of_a_run_is_checked() {
    let own = run(9).id();
    let member = |id: Id| format!("{id}:10000");
    let several = |ids: &[Id]| ids.iter().copied().map(member).collect::<Vec<_>>().join(",");
    assert_eq!(Run::read(&member(own), 9).map(|run| run.id()), Some(own), "of one");
    assert!(Run::read(&several(&[Id::from(1), Id::from(2)]), 9).is_some());
    for ids in [[Id::from(1), own], [own, Id::from(2)], [own, own]] {
        assert_eq!(Run::read(&several(&ids), 9), None, "the server knows the run by this id: {ids:?}");
    }
    for text in
        ["", ":10000", "1:10000", &member(own)[..30], &format!("{own}:"), &format!("{},", member(own))]
    {
        assert_eq!(Run::read(text, 9), None, "{text}");
    }
}

#[test]
fn members_hold_in_their_order() {
    let (runs, key, grant) = begun();
    let mut from = None;
    for (id, fence) in [(1, 7), (2, 8), (3, 9)] {
        let id = Id::from(id);
        assert_eq!(holds(runs.taken(&key, grant, from)), (id, fence));
        assert_eq!(runs.place(&key, id), Place::Holds { grant, fence });
        from = Some(id);
    }
    assert_eq!(runs.taken(&key, grant, from), Next::Over);
    assert_eq!(runs.place(&key, Id::from(3)), Place::Ended { grant });
    assert_eq!(runs.taken(&key, grant, from), Next::Over, "a release may be repeated");
    assert_eq!(runs.end(&key, grant, |_| true), Some(Remains { holder: from, waiting: Vec::new() }));
    assert_eq!(runs.place(&key, Id::from(3)), Place::Outside);
}

#[test]
fn doubted_run_ends_with_its_holder() {
    let (runs, key, grant) = begun();
    runs.taken(&key, grant, None);
    let first = Some(Id::from(1));
    let waiting = vec![Id::from(2), Id::from(3)];
    assert_eq!(runs.dismiss(), [(key.clone(), Remains { holder: first, waiting })]);
    assert_eq!(runs.place(&key, Id::from(2)), Place::Outside);
    assert_eq!(runs.place(&key, Id::from(1)), Place::Holds { grant, fence: 7 });
    assert_eq!(runs.taken(&key, grant, first), Next::Over);
}

#[test]
fn next_skips_members_that_have_left() {
    let (runs, key, grant) = begun();
    runs.taken(&key, grant, None);
    runs.leave(&key, Id::from(2));
    assert_eq!(holds(runs.taken(&key, grant, Some(Id::from(1)))).0, Id::from(3));
}

#[test]
fn only_the_holder_passes_the_lock_on() {
    let (runs, key, grant) = begun();
    runs.taken(&key, grant, None);
    for from in [None, Some(Id::from(2)), Some(Id::from(4))] {
        assert_eq!(runs.taken(&key, grant, from), Next::Gone, "{from:?}");
    }
    let older = Grant { fence: 8, ..grant };
    assert_eq!(runs.taken(&key, older, Some(Id::from(1))), Next::Gone);
}

#[test]
fn repeated_message_begins_no_run() {
    let (runs, key, grant) = begun();
    runs.taken(&key, grant, None);
    assert_eq!(runs.begin(&key, &run(9)), None);
    assert_eq!(runs.begin(&key, &run(8)), None, "an older one");
    let waiting = vec![Id::from(2), Id::from(3)];
    let left = Remains { holder: Some(Id::from(1)), waiting };
    assert_eq!(runs.begin(&key, &run(12)), Some((Grant { fence: 12, ..grant }, Some(left))));
}

#[test]
fn ending_run_grants_nothing() {
    let (runs, key, grant) = begun();
    assert_eq!(runs.lease(&key, grant, |_| false), None, "no member waits");
    assert_eq!(runs.begin(&key, &run(9)), None);
    assert_eq!(runs.place(&key, Id::from(1)), Place::Outside);
}

#[test]
fn late_reply_does_not_shorten_the_lease() {
    let (runs, key, grant) = begun();
    let now = Timestamp::now();
    runs.confirmed(&key, grant, now, LEASE * 6);
    runs.confirmed(&key, grant, now + Duration::from_secs(1), LEASE);
    let place = runs.place(&key, Id::from(1));
    assert_eq!(place, Place::Waits { grant, before: 0, until: Some(lease_deadline(now, LEASE * 6)) });
}

#[test]
fn hold_ends_with_its_own_lease() {
    let (runs, key, grant) = begun();
    runs.confirmed(&key, grant, Timestamp::now(), LEASE * 6);
    let mut lasts = None;
    let takes = |member: Member, until| lasts.replace((until, member.lease)).is_none();
    runs.next(&key, grant, None, |_| true, takes);
    let (until, lease) = lasts.unwrap();
    assert!(until <= Timestamp::now() + lease);
}

#[test]
fn holder_is_due_after_a_while() {
    let (runs, key, grant) = begun();
    let now = Timestamp::now();
    assert!(runs.due(now, now).is_empty(), "no member holds yet");
    runs.taken(&key, grant, None);
    let later = Timestamp::now() + Duration::from_secs(1);
    let due = runs.due(later, later);
    assert_eq!(due.iter().map(|due| (due.late, due.over)).collect::<Vec<_>>(), [(Some(Id::from(1)), None)]);
    let after = later + LEASE;
    let until = runs.due(now - LEASE, after)[0].over.expect("the lease is over");
    runs.confirmed(&key, grant, later, LEASE);
    assert_eq!(runs.end(&key, grant, |latest| latest <= until), None, "it was renewed");
}

/// A member with a closed mailbox does not take the lock. A member that has taken it is not passed over.
#[test]
fn next_member_that_takes_the_lock_holds() {
    let (runs, key, grant) = begun();
    let second = Id::from(2);
    assert_eq!(holds(runs.next(&key, grant, None, |_| true, |member, _| member.id == second)).0, second);
    let never = |_: Member, _| -> bool { panic!("a member was asked") };
    assert_eq!(runs.next(&key, grant, Some(second), |_| false, never), Next::Gone);
    assert_eq!(runs.place(&key, second), Place::Holds { grant, fence: 8 });
    assert_eq!(runs.next(&key, grant, Some(second), |_| true, |_, _| false), Next::Over);
}
