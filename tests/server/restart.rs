//! A server with its store in memory is killed and restarted: what is still held is not given away.

use crate::support::{Answer, Python, Server, in_time, until};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Far longer than a test: what is granted was granted in spite of the grace.
const ENDLESS: &str = "1h";

/// Takes holds with `before`, kills the server, and starts it again with this grace.
async fn restarted(grace: &str, before: &[&str]) -> (Server, Vec<Answer>) {
    let mut killed = Server::start(&["--restart-grace", "1ms"]);
    let mut granted = Vec::new();
    for path in before {
        let answer = killed.post(&format!("/v1/{path}")).await;
        assert_eq!(answer.status, 200, "{path}");
        granted.push(answer);
    }
    killed.signal(Signal::KILL);
    killed.ended();
    (Server::start(&["--restart-grace", grace]), granted)
}

fn fence(granted: &Answer) -> u64 {
    granted.header("locker-fence").unwrap().parse().unwrap()
}

impl Server {
    async fn renew(&self, name_and_query: &str) -> u16 {
        self.renew_at("semaphore", name_and_query).await
    }

    async fn renew_at(&self, kind: &str, name_and_query: &str) -> u16 {
        self.post(&format!("/v1/{kind}/{}", name_and_query.replace('?', "/renew?"))).await.status
    }

    async fn until_grace_is_over(&self) {
        until("the end is logged", async || self.errors().contains("the restart grace is over")).await;
    }
}

/// A lock by its name, and one by its key.
const LOCKS: [(&str, &str); 2] = [
    ("lock", "l"),
    ("lock/by-key", "e7d1e70120eddf339445617f6b481243:lock%7C3733c69536a04d53d3607351a4d1c8c1"),
];

#[tokio::test]
async fn restarted_server_grants_nothing_held() {
    let (server, _) = restarted(ENDLESS, &["semaphore/s/acquire?key=a"]).await;
    let refused = server.post("/v1/semaphore/s/acquire?key=b&maxwait=0").await;
    assert_eq!(refused.status, 408);
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&after), "{after}");
    assert_eq!(server.post("/v1/semaphore/other/acquire?maxwait=50").await.status, 408, "no name is known");
    for (path, status) in [
        ("tokenbucket/s/acquire", 204),
        ("event/e/send", 204),
        ("event/e/wait", 204),
        ("watchdog/w/kick", 204),
        ("semaphore/s/release?key=nobody", 409),
    ] {
        assert_eq!(server.post(&format!("/v1/{path}")).await.status, status, "{path} is not held");
    }
    assert_eq!(server.get("/readyz").await.status, 200, "renewals must come in");
}

#[tokio::test]
async fn renewed_hold_survives_a_restart() {
    let (server, granted) = restarted("3s", &["semaphore/s/acquire?key=a&expires=60000"]).await;
    assert_eq!(server.renew("s?key=a&expires=60000").await, 204);
    assert_eq!(server.renew("s?key=a&expires=60000").await, 204, "as often as the client likes");
    let started = Instant::now();
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=b&maxwait=5000").await.status, 408);
    assert!(started.elapsed() >= Duration::from_secs(5), "maxwait was over early: {:?}", started.elapsed());
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 204);
    let next = server.post("/v1/semaphore/s/acquire?key=b").await;
    assert!(next.status == 200 && fence(&next) > fence(&granted[0]));
    server.until_grace_is_over().await;
    assert!(server.errors().contains("taken_back=1"));
}

#[tokio::test]
async fn hold_of_a_silent_client_ends_with_the_grace() {
    let (server, _) = restarted("500ms", &["semaphore/s/acquire?key=a"]).await;
    assert_eq!(server.post("/v1/semaphore/s/acquire?key=b").await.status, 200);
    assert_eq!(server.renew("s?key=a").await, 409, "it comes too late");
}

/// The size is that of the renewal: the server does not know the former one.
#[tokio::test]
async fn holds_come_back_up_to_their_size() {
    let before = ["a", "b", "c"].map(|key| format!("semaphore/s/acquire?size=3&key={key}"));
    let (server, _) = restarted(ENDLESS, &before.each_ref().map(String::as_str)).await;
    for (key, status) in [("a", 204), ("b", 204), ("c", 204), ("d", 409)] {
        assert_eq!(server.renew(&format!("s?size=3&key={key}")).await, status, "{key}");
    }
    assert_eq!(server.renew("t?key=a").await, 204);
    assert_eq!(server.renew("t?key=b").await, 409, "the size is 1 if it is left out");
    assert_eq!(server.renew("t?key=b&size=2").await, 204);
    assert_eq!(server.renew("t?key=c").await, 409, "and does not make the name smaller");
    assert!(server.get("/v1/semaphore/t").await.body.contains(r#""size":2,"used":2"#));
}

#[tokio::test]
async fn the_higher_fence_takes_the_place() {
    let (server, _) = restarted(ENDLESS, &[]).await;
    for (renewal, status) in [
        ("s?key=old&fence=5", 204),
        ("s?key=new&fence=9", 204),
        ("s?key=old&fence=5", 409),
        ("s?key=older&fence=4", 409),
        ("s?key=same&fence=9", 409),
        ("s?key=unknown", 409),
        ("s?key=new&fence=9", 204),
        ("t?key=first", 204),
        ("t?key=second&fence=9", 409),
        ("t?key=first", 204),
        ("u?key=a&fence=9007199254740992", 400),
        ("u?key=a&fence=-1", 400),
    ] {
        assert_eq!(server.renew(renewal).await, status, "{renewal}");
    }
}

/// The clock may have gone back while the server was down.
#[tokio::test]
async fn later_fences_are_higher_than_claimed_ones() {
    let (server, _) = restarted("2s", &[]).await;
    let claimed = (1_u64 << 53) - 1;
    assert_eq!(server.renew(&format!("s?key=a&fence={claimed}")).await, 204);
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 204);
    let next = server.post("/v1/semaphore/s/acquire").await;
    assert!(fence(&next) > claimed, "{next:?}");
}

/// Otherwise a renewal that arrives late would take back what nobody releases again.
#[tokio::test]
async fn released_hold_does_not_come_back() {
    let (server, _) = restarted(ENDLESS, &["semaphore/s/acquire?key=a", "semaphore/t/acquire?key=a"]).await;
    assert_eq!(server.post("/v1/semaphore/s/release?key=a").await.status, 409, "not known yet");
    assert_eq!(server.renew("s?key=a").await, 409);
    assert_eq!(server.renew("t?key=a").await, 204);
    assert_eq!(server.post("/v1/semaphore/t/release?key=a").await.status, 204);
    assert_eq!(server.renew("t?key=a").await, 409);
    for name in ["s", "t"] {
        assert_eq!(server.renew(&format!("{name}?key=b")).await, 204, "the place is free");
    }
    assert_eq!(server.renew("u?key=a&expires=1").await, 204);
    let gone = async || server.get("/v1/semaphore/u").await.body.contains(r#""used":0"#);
    until("it has expired", async || server.get("/v1/semaphore/u").await.status == 404 || gone().await).await;
    assert_eq!(server.renew("u?key=a").await, 409, "a hold that has expired is lost");
}

#[tokio::test]
async fn lock_is_taken_back_by_one_client() {
    for (kind, name) in LOCKS {
        let (server, _) = restarted(ENDLESS, &[&*format!("{kind}/{name}/acquire?key=a")]).await;
        let acquire = format!("/v1/{kind}/{name}/acquire?key=b&maxwait=0");
        assert_eq!(server.post(&acquire).await.status, 408, "{kind}");
        for (renewal, status) in [
            ("key=a&fence=5&expires=60000", 204),
            ("key=a", 204),
            ("key=b", 409),
            ("key=b&fence=5", 409),
            ("key=b&size=9", 409),
            ("key=b&fence=9", 204),
            ("key=a&fence=5", 409),
            ("key=b", 204),
        ] {
            assert_eq!(
                server.renew_at(kind, &format!("{name}?{renewal}")).await,
                status,
                "{kind}: {renewal}"
            );
            let holders = server.get(&format!("/v1/{kind}/{name}")).await.body.matches("fence").count();
            assert_eq!(holders, 1, "{kind}: {renewal}");
        }
        assert_eq!(server.post(&format!("/v1/{kind}/{name}/release?key=b")).await.status, 204);
        assert_eq!(server.renew_at(kind, &format!("{name}?key=b&fence=9")).await, 409, "it was released");
        assert_eq!(server.renew_at(kind, &format!("{name}?key=c")).await, 204, "the lock is free");
        assert_eq!(server.delete(&format!("/v1/{kind}/{name}")).await.status, 204);
        assert_eq!(server.renew_at(kind, &format!("{name}?key=c")).await, 409, "it was deleted");
        assert_eq!(server.post(&acquire).await.status, 408, "{kind}");
    }
}

#[tokio::test]
async fn sides_are_taken_back_without_both() {
    let (server, _) = restarted(ENDLESS, &["rwlock/r/acquire?mode=read&key=a"]).await;
    assert_eq!(server.post("/v1/rwlock/r/acquire?mode=read&key=d&maxwait=0").await.status, 408);
    for (renewal, status, modes) in [
        ("key=a&mode=read&fence=5", 204, [1, 0]),
        ("key=b&mode=read&fence=6", 204, [2, 0]),
        ("key=a", 204, [2, 0]),
        ("key=w", 409, [2, 0]),
        ("key=w&fence=4", 409, [2, 0]),
        ("key=w&fence=9", 204, [0, 1]),
        ("key=a&mode=read&fence=5", 409, [0, 1]),
        ("key=b&mode=read&fence=6", 409, [0, 1]),
        ("key=c&mode=read&fence=8", 409, [0, 1]),
        ("key=d&mode=read", 409, [0, 1]),
        ("key=w&mode=read", 204, [0, 1]),
        ("key=c&mode=read&fence=12", 204, [1, 0]),
        ("key=d&mode=read", 204, [2, 0]),
        ("key=w&fence=9", 409, [2, 0]),
        ("key=v&fence=11", 409, [2, 0]),
    ] {
        assert_eq!(server.renew_at("rwlock", &format!("r?{renewal}")).await, status, "{renewal}");
        let state = server.get("/v1/rwlock/r").await.body;
        assert_eq!(
            ["read", "write"].map(|mode| state.matches(&format!("{mode:?}")).count()),
            modes,
            "{state}"
        );
    }
}

/// One writer and one reader claim at the same time, again and again.
#[tokio::test]
async fn racing_claims_leave_one_holder() {
    let (server, _) = restarted(ENDLESS, &[]).await;
    for number in 0..50 {
        let claims = [
            ("lock", format!("n{number}?key=a"), format!("n{number}?key=b")),
            ("rwlock", format!("n{number}?key=a&mode=read"), format!("n{number}?key=b&mode=write")),
        ];
        for (kind, first, second) in claims {
            let statuses = tokio::join!(server.renew_at(kind, &first), server.renew_at(kind, &second));
            assert!(matches!(statuses, (204, 409) | (409, 204)), "{kind} {number}: {statuses:?}");
        }
    }
}

/// A client may send a renewal again before the first one is answered.
#[tokio::test]
async fn repeated_renewals_take_back_once() {
    let (server, _) = restarted(ENDLESS, &[]).await;
    for number in 0..200 {
        let renewals = (0..8).map(|_| {
            let url = server.url(&format!("/v1/lock/n{number}/renew?key=a&fence=7"));
            tokio::spawn(
                async move { crate::support::answer(crate::support::client().post(url)).await.status },
            )
        });
        for renewal in renewals.collect::<Vec<_>>() {
            assert_eq!(in_time("the renewal", renewal).await.unwrap(), 204, "{number}");
        }
    }
}

#[tokio::test]
async fn every_kind_of_hold_has_later_fences() {
    let (server, _) = restarted("2s", &[]).await;
    let claimed = (1_u64 << 53) - 1;
    let holds = [LOCKS[0], LOCKS[1], ("rwlock", "r"), ("semaphore", "deleted")];
    for (kind, name) in holds {
        let claim = format!("{name}?key=a&fence={claimed}&mode=read");
        assert_eq!(server.renew_at(kind, &claim).await, 204, "{kind}");
        let ended = match name {
            "deleted" => server.delete(&format!("/v1/{kind}/{name}")).await,
            _ => server.post(&format!("/v1/{kind}/{name}/release?key=a")).await,
        };
        assert_eq!(ended.status, 204, "{kind}");
    }
    for (kind, name) in holds {
        let next = server.post(&format!("/v1/{kind}/{name}/acquire?mode=write")).await;
        assert!(next.status == 200 && fence(&next) > claimed, "{kind}: {next:?}");
    }
}

/// Calls wait for the grace in one line. It must neither delay nor refuse those that come later.
#[tokio::test]
async fn grace_is_without_effect_once_over() {
    let options = ["--restart-grace", "20ms", "--max-names", "100000", "--max-waits", "1"];
    let server = Server::start(&options);
    server.until_grace_is_over().await;
    let (client, server) = (crate::support::client(), std::sync::Arc::new(server));
    let tasks = (0..16).map(|task| {
        let (client, server) = (client.clone(), server.clone());
        tokio::spawn(async move {
            for number in 0..200 {
                for maxwait in [0, 5000] {
                    let name = format!("n{task}.{number}.{maxwait}");
                    let url = server.url(&format!("/v1/lock/{name}/acquire?maxwait={maxwait}&expires=1000"));
                    let answer = crate::support::answer(client.post(url)).await;
                    assert_eq!(answer.status, 200, "{name}: {}", answer.body);
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        in_time("the calls", task).await.unwrap();
    }
}

/// They would otherwise fill the list of names, and be refused when it is full.
#[tokio::test]
async fn late_renewals_use_no_name() {
    let server = Server::start(&["--restart-grace", "1ms", "--max-names", "2"]);
    server.until_grace_is_over().await;
    for number in 0..5 {
        assert_eq!(server.renew(&format!("n{number}?key=a")).await, 409, "{number}");
    }
    assert_eq!(server.post("/v1/semaphore/s/acquire?maxwait=0").await.status, 200);
}

#[tokio::test]
async fn calls_pass_in_order_after_the_grace() {
    let (server, _) = restarted("3s", &[]).await;
    assert_eq!(server.renew("s?key=a").await, 204);
    let mut waiters = Vec::new();
    for number in 0..20_u64 {
        let url = server.url(&format!("/v1/semaphore/s/acquire?key=k{number}"));
        waiters.push(tokio::spawn(async move {
            crate::support::answer(crate::support::client().post(url)).await
        }));
        until("it waits", async || {
            server.get("/metrics").await.body.contains(&format!("\nlocker_waiting {}\n", number + 1))
        })
        .await;
    }
    let mut holder = "a".to_owned();
    for (number, waiter) in waiters.into_iter().enumerate() {
        server.until_waiting("semaphore/s", 20 - number as u64).await;
        assert_eq!(server.post(&format!("/v1/semaphore/s/release?key={holder}")).await.status, 204);
        holder = in_time("the next in line", waiter).await.unwrap().body;
        assert_eq!(holder, format!("k{number}"));
    }
}

#[tokio::test]
async fn zeromq_holds_survive_a_restart() {
    let (server, _) = restarted(ENDLESS, &["semaphore/s/acquire?key=a"]).await;
    let mut client = Python::start(&["relays", &server.zmq()]);
    for (request, answer) in [
        ("POST /v1/semaphore/s/acquire?key=b&maxwait=0", "408\u{1f}maxwait was exceeded"),
        ("POST /v1/semaphore/s/renew?key=a&fence=7", "204\u{1f}"),
        ("POST /v1/semaphore/s/acquire?key=b&maxwait=50", "408\u{1f}maxwait was exceeded"),
        ("POST /v1/semaphore/s/release?key=a", "204\u{1f}"),
        ("POST /v1/semaphore/s/renew?key=a", "409\u{1f}this key holds nothing"),
        ("POST /v1/semaphore/s/renew?key=b", "204\u{1f}"),
        ("POST /v1/semaphore/s/renew?key=c", "409\u{1f}another client has taken this place back"),
    ] {
        client.line();
        client.tell(request);
        assert_eq!(client.line(), answer, "{request}");
    }
}

/// Their clients need not renew within the grace, and would lose them.
#[tokio::test]
async fn long_holds_are_warned_of_once() {
    let server = Server::start(&["--restart-grace", "100ms"]);
    assert_eq!(server.post("/v1/semaphore/s/acquire?size=3&expires=100").await.status, 200);
    assert!(!server.errors().contains("--restart-grace"), "{}", server.errors());
    for _ in 0..2 {
        assert_eq!(server.post("/v1/semaphore/s/acquire?size=3&expires=0").await.status, 200);
    }
    assert_eq!(server.errors().matches("longer than --restart-grace").count(), 1, "{}", server.errors());
}

#[test]
fn other_stores_need_no_grace() {
    for store in
        ["redis://127.0.0.1:1", "postgres://127.0.0.1:1", "etcd://127.0.0.1:1", "file:///proc/locker"]
    {
        let arguments = ["serve", "--store", store, "--restart-grace", "10s"];
        let output = crate::support::binary().args(arguments).output().unwrap();
        let reason = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{store}: {reason}");
        assert!(reason.contains("--restart-grace is for memory:// only"), "{store}: {reason}");
    }
}
