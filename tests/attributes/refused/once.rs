use locker::once_per;

#[once_per("500ms")]
//~ `"500ms"`: every 500ms is out of range: give 1s to 366d
fn too_often() -> locker::Result<()> {
    Ok(())
}

#[once_per(every = "367d")]
//~ `"367d"`: every 1year 1day 18h is out of range: give 1s to 366d
fn too_rarely() -> locker::Result<()> {
    Ok(())
}

#[once_per("1h", early = "40m")]
//~ `"40m"`: early 40m is more than half of every 1h
fn too_early() -> locker::Result<()> {
    Ok(())
}

#[once_per(args(tenant))]
//~ `#[once_per(args(tenant))]`: `once_per` needs `every`: `"1d", args(0)`
fn of_no_slot(tenant: u64) -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", every = "1d")]
//~ `every`: `every` is given twice: remove one
fn of_two_slots() -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", each(ids))]
//~ `each`: one call runs per slot and `args`: remove `each`
fn of_each(ids: Vec<u64>) -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", release = "on_expiry")]
//~ `release`: the run ends with the body, and counts if it succeeds: remove `release`
fn never_released() -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", max_retry = 3)]
//~ `max_retry`: a call waits for the run of another one, up to `timeout`: remove `max_retry`
fn that_tries_again() -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", after_crash = "maybe")]
//~ `"maybe"`: `after_crash` takes one of "refuse", "repeat"
fn after_a_crash() -> locker::Result<()> {
    Ok(())
}

#[once_per("1d", on_skip = || 7)]
//~ `|| 7`: `on_skip` takes a path to a function without arguments, which gives the value in `Ok`, not a closure
fn skipped_by_a_closure() -> locker::Result<u64> {
    Ok(1)
}

fn main() {}
