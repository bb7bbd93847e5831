use super::*;
use crate::api::ROWS;
use locker_runtime::Mode;
use proptest::prelude::*;

fn get(target: &str) -> Result<Call, Answer> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    parse(Method::Get, path, query, "").map(|parsed| parsed.call)
}

fn params(target: &str) -> Params {
    match get(target) {
        Ok(Call::Action { params, .. }) => params,
        other => panic!("{target}: {other:?}"),
    }
}

fn status(method: Method, target: &str) -> u16 {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    parse(method, path, query, "").map_or_else(|answer| answer.status, |_| 0)
}

#[test]
fn rows_are_in_the_order_of_the_actions() {
    for row in &ROWS {
        assert_eq!((row.action.row().resource, row.action.row().segment), (row.resource, row.segment));
    }
}

/// The key of an attribute, as a path spells it and as it is.
const KEY: (&str, &str) = (
    "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1",
    "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1",
);

#[test]
fn actions_are_parsed_with_and_without_v1() {
    for row in &ROWS {
        for start in ["/v1", ""] {
            let (written, read) = if row.resource == Resource::LockByKey { KEY } else { ("a%20b", "a b") };
            let query = if row.action == Action::BeginRun { "keep=1" } else { "key=k&mode=read" };
            let path = format!("{start}/{}/{written}/{}?{query}", row.resource.segment(), row.segment);
            let Ok(Call::Action { action, name, .. }) = get(&path) else { panic!("{path}") };
            assert_eq!((action, name.as_str()), (row.action, read));
        }
    }
    assert_eq!(get("/v1"), Ok(Call::List(Box::default())));
    assert_eq!(get("/counter/c/stats"), Ok(Call::Stats(Resource::Counter, "c".into())));
    let (written, read) = KEY;
    assert_eq!(get(&format!("/v1/lock/by-key/{written}")), Ok(Call::Show(Resource::LockByKey, read.into())));
    assert_eq!(get("/v1/event/e"), Ok(Call::Show(Resource::Event, "e".into())));
    let deleted = parse(Method::Delete, "/v1/watchdog/w", "", "").unwrap();
    assert_eq!(deleted.call, Call::Delete(Resource::Watchdog, "w".into()));
}

#[test]
fn holds_are_ended_up_to_a_fence() {
    let delete = |path: &str, query: &str| parse(Method::Delete, path, query, "").map(|parsed| parsed.call);
    for (path, resource) in [("/v1/lock/a", Resource::Lock), ("/semaphore/a", Resource::Semaphore)] {
        assert_eq!(delete(path, "Fence=7&id=x"), Ok(Call::Evict(resource, "a".into(), 7)));
    }
    for (path, query, named) in [
        ("/v1/event/a", "fence=7", "fence is for what is held"),
        ("/v1/lock/a", "fence=", "fence"),
        ("/v1/lock/a", "fence=-1", "fence is -1"),
        ("/v1/lock/a", "fence=1&fence=2", "fence is given twice"),
    ] {
        let refusal = delete(path, query).expect_err(query);
        assert!(refusal.status == 400 && refusal.body.contains(named), "{query}: {}", refusal.body);
    }
    assert_eq!(parse(Method::Get, "/v1/lock/a", "fence=7", "").expect_err("of a GET").status, 400);
}

#[test]
fn defaults_are_those_of_bouncer() {
    let defaults = Params {
        size: 1,
        interval: Duration::from_secs(1),
        maxwait: Duration::MAX,
        expires: Some(Duration::from_mins(1)),
        key: None,
        message: None,
        mode: Mode::Write,
        number: 0,
        run: None,
    };
    assert_eq!(params("/v1/tokenbucket/a/acquire"), defaults);
    assert_eq!(params("/v1/semaphore/a/acquire"), defaults);
    assert_eq!(params("/v1/watchdog/a/kick"), defaults);
    assert_eq!(params("/v1/lock/a/acquire"), defaults);
    assert_eq!(params("/v1/barrier/a/wait"), Params { size: 2, ..defaults.clone() });
    assert_eq!(params("/v1/counter/a/count"), Params { number: 1, ..defaults.clone() });
    assert_eq!(params("/v1/counter/a/reset?amount=7"), defaults);
    assert_eq!(params("/v1/rwlock/a/acquire?mode=read").mode, Mode::Read);
}

#[test]
fn the_largest_numbers_are_accepted() {
    let most = i64::MAX;
    let all = params(&format!(
        "/v1/tokenbucket/a/acquire?size={most}&interval={most}&maxwait={most}&expires={most}"
    ));
    let longest = Duration::from_millis(most.unsigned_abs());
    assert_eq!(
        (all.size, all.interval, all.maxwait, all.expires),
        (most.unsigned_abs(), longest, longest, Some(longest))
    );
    assert_eq!(params("/v1/semaphore/a/acquire?expires=0&maxwait=-9").expires, None);
    assert_eq!(params("/v1/semaphore/a/acquire?maxwait=0").maxwait, Duration::ZERO);
    assert_eq!(
        params("/v1/event/a/wait?expires=-5&interval=0&size=0").size,
        0,
        "parameters that an action does not need are only parsed"
    );
}

#[test]
fn wrong_requests_are_refused() {
    for (target, expected) in [
        ("/", 404),
        ("/v1/", 404),
        ("/v2/event/a/wait", 404),
        ("/v1/locks/a/acquire", 404),
        ("/v1/lock/by-key", 404),
        ("/v1/lock/by-key/acquire", 400),
        ("/v1/lock/by-key/lock:a/acquire", 400),
        ("/v1/lock/by-key/semaphore:a", 400),
        ("/v1/event/a/stats/x", 404),
        ("/v1/lock/a/release", 400),
        ("/v1/lock/a/acquire?expires=0", 400),
        ("/v1/rwlock/a/renew?key=k&expires=0", 400),
        ("/v1/rwlock/a/acquire", 400),
        ("/v1/leader/a/release", 400),
        ("/v1/leader/a/acquire?expires=0", 400),
        ("/v1/leader/a/lead", 404),
        ("/v1/rwlock/a/acquire?mode=x", 400),
        ("/v1/barrier/a/wait?size=0", 400),
        ("/v1/counter/a/count?amount=9007199254740992", 400),
        ("/v1/counter/a/reset?value=-9007199254740992", 400),
        ("/v1/event", 404),
        ("/v1/event/a/wait/", 404),
        ("/v1/event/a/release", 404),
        ("/v1/Event/a/wait", 404),
        ("event/a/wait", 404),
        ("/v1/event/a/b/wait", 404),
        ("/v1/v1/event/a/wait", 404),
        ("", 404),
        ("/v1/event/a%2Fb/wait", 400),
        ("/v1/event//wait", 400),
        ("/v1/event/", 400),
        ("/v1/event/%00/wait", 400),
        ("/v1/event/%zz/wait", 400),
        ("/v1/semaphore/a/release", 400),
        ("/v1/semaphore/a/renew?expires=5", 400),
        ("/v1/semaphore/a/acquire?expires=-1", 400),
        ("/v1/semaphore/a/renew?key=k&expires=-1", 400),
        ("/v1/watchdog/a/kick?expires=0", 400),
        ("/v1/watchdog/a/kick?expires=-1", 400),
        ("/v1/tokenbucket/a/acquire?interval=0", 400),
        ("/v1/tokenbucket/a/acquire?interval=-1", 400),
        ("/v1/tokenbucket/a/acquire?size=-1", 400),
        ("/v1/event/a/wait?size=-1", 400),
        ("/v1?nonsense=1", 400),
    ] {
        assert_eq!(status(Method::Get, target), expected, "{target}");
    }
}

#[test]
fn paths_accept_their_methods_only() {
    for (method, target, expected) in [
        (Method::Post, "/v1/event/a/send", 0),
        (Method::Delete, "/v1/event/a/send", 405),
        (Method::Other, "/v1/event/a/send", 405),
        (Method::Post, "/v1/event/a", 405),
        (Method::Post, "/v1/event/a/stats", 405),
        (Method::Delete, "/v1/lock/by-key/x/stats", 405),
        (Method::Other, "/v1/event/a", 405),
        (Method::Post, "/v1", 405),
        (Method::Delete, "/v1", 405),
        (Method::Other, "/nowhere", 404),
    ] {
        assert_eq!(status(method, target), expected, "{method:?} {target}");
    }
    let allow = |path| parse(Method::Other, path, "", "").unwrap_err().allow;
    assert_eq!(
        [allow("/v1"), allow("/v1/event/a"), allow("/event/a/wait")],
        [Some("GET"), Some("GET, DELETE"), Some("GET, POST")]
    );
}

proptest! {
    #[test]
    fn any_request_is_parsed_or_refused(path in "(/v1)?/(event|semaphore|lock|lock/by-key|rwlock|leader|counter)?/?.{0,30}/?(wait|acquire|stats|count)?", query in ".{0,60}") {
        if let Err(answer) = parse(Method::Get, &path, &query, "") {
            prop_assert!(matches!(answer.status, 400 | 404));
            prop_assert!(!answer.body.contains('\n'), "{}", answer.body);
        }
    }
}
