//! The checks of a server at each connect.

use crate::support::{LEASE, builder, connect, hold, until, version, waiting};
use locker::{ErrorKind, Locker};
use locker_harness::{Fault, Proxy, RedisServer};

#[tokio::test]
async fn evicting_server_is_refused_unless_allowed() {
    let Some(server) = RedisServer::with(&["--maxmemory-policy", "volatile-lru"]) else { return };
    let error = Locker::connect(&server.url()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false));
    for word in ["volatile-lru", "noeviction", "allow_eviction=yes"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let locker = connect(&format!("{}?allow_eviction=yes", server.url())).await;
    hold(&locker, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn eviction_is_read_without_config_permission() {
    let Some(server) = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let _: String = server.ask("ACL", &["SETUSER", "default", "-config"]);
    let error = Locker::connect(&server.url()).await.unwrap_err();
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    let _: String = server.ask("ACL", &["SETUSER", "default", "-info"]);
    hold(&connect(&server.url()).await, "a").await.release().await.unwrap();
}

#[tokio::test]
async fn old_server_is_refused_by_its_version() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let version = version(&server);
    proxy.set(Fault::Rewrite(format!("\r\n{version}\r\n"), format!("\r\n5{}\r\n", &version[1..])));
    let error = Locker::connect(&proxy.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misused);
    assert!(error.to_string().contains("redis 5.") && error.to_string().contains("6.2"), "{error}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let Some(server) = RedisServer::start() else { return };
    let _: String = server.ask("REPLICAOF", &["127.0.0.1", "1"]);
    let error = Locker::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("replica") && error.to_string().contains("master"), "{error}");
}

/// The ACL line of `docs/reference/redis.md`.
fn documented_permissions() -> Vec<String> {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/redis.md")).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER shop on >secret ")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

fn set_user(server: &RedisServer, rules: &[String]) {
    let rules =
        ["SETUSER", "shop", "reset", "on", ">secret"].into_iter().chain(rules.iter().map(String::as_str));
    let _: String = server.ask("ACL", &rules.collect::<Vec<_>>());
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let Some(server) = RedisServer::start() else { return };
    set_user(&server, &documented_permissions());
    let url = server.url().replace("redis://", "redis://shop:secret@");
    let locker = builder(&url).prefix("shop:").build().await.unwrap();
    let guard = hold(&locker, "a").await;
    let waiter = tokio::spawn({
        let locker = locker.clone();
        async move { hold(&locker, "a").await.release().await }
    });
    until("the waiter", async || waiting(&server, "shop:lock:a") == 1).await;
    assert!(locker.lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// Each command in a script is tried at the start and is in the documented line.
#[test]
fn every_command_is_tried_and_documented() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../stores/redis/src/lua");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let tried = read(std::path::Path::new(scripts).join("permissions.lua"));
    let documented = documented_permissions();
    let paths = std::fs::read_dir(scripts).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "lua")) {
        let text = read(path);
        for call in text.split("redis.call('").skip(1) {
            let command = call.split('\'').next().unwrap();
            assert!(tried.contains(&format!("try('{command}'")), "{command} is tried");
            let permission = format!("+{}", command.to_lowercase());
            assert!(documented.contains(&permission), "{permission} is documented");
        }
    }
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let Some(server) = RedisServer::start() else { return };
    let url = server.url().replace("redis://", "redis://shop:secret@");
    for permission in ["+set", "+zadd", "+publish", "+time", "+eval", "+evalsha", "+subscribe"] {
        let rules = documented_permissions();
        assert!(rules.iter().any(|rule| rule == permission), "{permission} is documented");
        set_user(&server, &rules.into_iter().filter(|rule| rule != permission).collect::<Vec<_>>());
        let error = builder(&url).prefix("shop:").build().await.expect_err(permission);
        assert_eq!((error.kind(), error.is_temporary()), (ErrorKind::Misused, false), "{error}");
        let text = error.to_string().to_lowercase();
        assert!(text.contains(&permission[1..]) && text.contains("acl"), "{permission}: {error}");
    }
    set_user(&server, &documented_permissions());
    let error = builder(&url).prefix("other:").build().await.unwrap_err();
    assert!(error.to_string().contains("~other:*"), "{error}");
    let no_channel =
        documented_permissions().into_iter().filter(|rule| !rule.starts_with('&')).collect::<Vec<_>>();
    set_user(&server, &no_channel);
    let error = builder(&url).prefix("shop:").build().await.unwrap_err();
    assert!(error.to_string().contains("&locker:push:*"), "{error}");
}

#[tokio::test]
async fn server_is_checked_at_every_connect() {
    let Some(server) = RedisServer::start() else { return };
    let locker = connect(&server.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let _: String = server.ask("CONFIG", &["SET", "maxmemory-policy", "allkeys-lru"]);
    let _: i64 = server.ask("CLIENT", &["KILL", "TYPE", "PUBSUB"]);
    let refused = async || {
        let error = locker.lock("a").timeout(LEASE).acquire().await.err();
        error
            .is_some_and(|error| error.kind() == ErrorKind::Misused && error.message().contains("noeviction"))
    };
    until("the refusal", refused).await;
    let _: String = server.ask("CONFIG", &["SET", "maxmemory-policy", "noeviction"]);
    until("the server's mending", async || locker.lock("a").acquire().await.is_ok()).await;
}

#[tokio::test]
async fn a_user_that_may_not_load_scripts_sends_them() {
    let Some(server) = RedisServer::start() else { return };
    // Redis 6.2 has no rules for subcommands of allowed commands.
    let rule = if version(&server).starts_with("6.") { "-script" } else { "-script|load" };
    let _: String = server.ask("ACL", &["SETUSER", "default", rule]);
    let locker = connect(&server.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let _: String = server.ask("ACL", &["SETUSER", "default", "+script"]);
    let _: String = server.ask("SCRIPT", &["FLUSH"]);
    let _: String = server.ask("ACL", &["SETUSER", "default", rule]);
    hold(&locker, "a").await.release().await.unwrap();
}

/// Every reconnect sent all scripts, 172 KB: of 3,000 processes after a restart of the server, none was connected for
/// 5 s.
#[tokio::test]
async fn reconnect_sends_only_missing_scripts() {
    let Some(server) = RedisServer::start() else { return };
    let proxy = Proxy::to(server.port());
    let locker = connect(&proxy.url()).await;
    hold(&locker, "a").await.release().await.unwrap();
    let fact = |section: &str, name: &str| -> u64 {
        let facts: String = server.ask("INFO", &[section]);
        facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok()).unwrap()
    };
    let kept = fact("memory", "number_of_cached_scripts");
    let reconnect = async || {
        let (before, received) = (proxy.accepted(), fact("stats", "total_net_input_bytes"));
        assert_eq!(server.ask::<i64>("CLIENT", &["KILL", "TYPE", "pubsub"]), 1);
        until("another connection", async || proxy.accepted() > before).await;
        hold(&locker, "a").await.release().await.unwrap();
        fact("stats", "total_net_input_bytes") - received
    };
    let received = reconnect().await;
    assert!(received < 20_000, "{received} bytes");
    let _: String = server.ask("SCRIPT", &["FLUSH"]);
    let received = reconnect().await;
    assert!(received > 100_000, "{received} bytes");
    assert_eq!(fact("memory", "number_of_cached_scripts"), kept);
}
