use super::*;
use proptest::prelude::*;

fn get(target: &str) -> Result<Call, Answer> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    decode(Method::Get, path, query, "").map(|decoded| decoded.call)
}

fn ask(target: &str) -> Ask {
    match get(target) {
        Ok(Call::Act { ask, .. }) => ask,
        other => panic!("{target}: {other:?}"),
    }
}

fn status(method: Method, target: &str) -> u16 {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    decode(method, path, query, "").map_or_else(|answer| answer.status, |_| 0)
}

#[test]
fn rows_stand_in_the_order_of_the_actions() {
    for row in &table::ROWS {
        assert_eq!((row.action.row().kind, row.action.row().segment), (row.kind, row.segment));
    }
}

#[test]
fn every_action_is_read_with_and_without_v1() {
    for row in &table::ROWS {
        for start in ["/v1", ""] {
            let path = format!("{start}/{}/a%20b/{}?key=k", row.kind.segment(), row.segment);
            let Ok(Call::Act { action, name, .. }) = get(&path) else { panic!("{path}") };
            assert_eq!((action, name.as_str()), (row.action, "a b"));
        }
    }
    assert_eq!(get("/v1"), Ok(Call::List));
    assert_eq!(get("/v1/event/e"), Ok(Call::Show(Kind::Event, "e".into())));
    let deleted = decode(Method::Delete, "/v1/watchdog/w", "", "").unwrap();
    assert_eq!(deleted.call, Call::Delete(Kind::Watchdog, "w".into()));
}

#[test]
fn defaults_are_the_references() {
    let defaults = Ask {
        size: 1,
        interval: Duration::from_secs(1),
        maxwait: Duration::MAX,
        expires: Some(Duration::from_mins(1)),
        key: None,
        message: None,
    };
    assert_eq!(ask("/v1/tokenbucket/a/acquire"), defaults);
    assert_eq!(ask("/v1/semaphore/a/acquire"), defaults);
    assert_eq!(ask("/v1/watchdog/a/kick"), defaults);
}

#[test]
fn extremes_are_taken_as_they_are() {
    let most = i64::MAX;
    let all =
        ask(&format!("/v1/tokenbucket/a/acquire?size={most}&interval={most}&maxwait={most}&expires={most}"));
    let longest = Duration::from_millis(most.unsigned_abs());
    assert_eq!(
        (all.size, all.interval, all.maxwait, all.expires),
        (most.unsigned_abs(), longest, longest, Some(longest))
    );
    assert_eq!(ask("/v1/semaphore/a/acquire?expires=0&maxwait=-9").expires, None);
    assert_eq!(ask("/v1/semaphore/a/acquire?maxwait=0").maxwait, Duration::ZERO);
    assert_eq!(
        ask("/v1/event/a/wait?expires=-5&interval=0&size=0").size,
        0,
        "what is not needed is only read"
    );
}

#[test]
fn refuses_what_is_wrong() {
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
fn each_path_has_its_methods() {
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
    let allow = |path| decode(Method::Other, path, "", "").unwrap_err().allow;
    assert_eq!(
        [allow("/v1"), allow("/v1/event/a"), allow("/event/a/wait")],
        [Some("GET"), Some("GET, DELETE"), Some("GET, POST")]
    );
}

proptest! {
    #[test]
    fn whatever_comes_is_read_or_refused(path in "(/v1)?/(event|semaphore|tokenbucket)?/?.{0,30}/?(wait|acquire)?", query in ".{0,60}") {
        if let Err(answer) = decode(Method::Get, &path, &query, "") {
            prop_assert!(matches!(answer.status, 400 | 404));
            prop_assert!(!answer.body.contains('\n'), "{}", answer.body);
        }
    }
}
