use super::*;
use crate::api::ROWS;
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

#[test]
fn actions_are_parsed_with_and_without_v1() {
    for row in &ROWS {
        for start in ["/v1", ""] {
            let path = format!("{start}/{}/a%20b/{}?key=k", row.resource.segment(), row.segment);
            let Ok(Call::Action { action, name, .. }) = get(&path) else { panic!("{path}") };
            assert_eq!((action, name.as_str()), (row.action, "a b"));
        }
    }
    assert_eq!(get("/v1"), Ok(Call::List));
    assert_eq!(get("/v1/event/e"), Ok(Call::Show(Resource::Event, "e".into())));
    let deleted = parse(Method::Delete, "/v1/watchdog/w", "", "").unwrap();
    assert_eq!(deleted.call, Call::Delete(Resource::Watchdog, "w".into()));
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
    };
    assert_eq!(params("/v1/tokenbucket/a/acquire"), defaults);
    assert_eq!(params("/v1/semaphore/a/acquire"), defaults);
    assert_eq!(params("/v1/watchdog/a/kick"), defaults);
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
        ("/v1/lock/a/acquire", 404),
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
    fn any_request_is_parsed_or_refused(path in "(/v1)?/(event|semaphore|tokenbucket)?/?.{0,30}/?(wait|acquire)?", query in ".{0,60}") {
        if let Err(answer) = parse(Method::Get, &path, &query, "") {
            prop_assert!(matches!(answer.status, 400 | 404));
            prop_assert!(!answer.body.contains('\n'), "{}", answer.body);
        }
    }
}
