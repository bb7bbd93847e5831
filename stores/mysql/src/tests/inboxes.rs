//! Who hears what.

use super::*;
use contract::faults::hear_again;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Draws these numbers, one after the other.
fn draw(numbers: Vec<u32>) -> Draw {
    let next = AtomicUsize::new(0);
    Box::new(move || numbers[next.fetch_add(1, Ordering::Relaxed).min(numbers.len() - 1)])
}

async fn party_with(url: &str, numbers: Vec<u32>) -> Party<Mysql> {
    Party::new(open_with(draw(numbers), GENEROUS, url, &Opening::default()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_no_inbox() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let one = party_with(&url, vec![7]).await;
    let other = party_with(&url, vec![7, 7, 8]).await;
    assert_eq!((one.backend.inbox(), other.backend.inbox()), (7, 8));
    contract::messages_are_heard(&one, &other).await;
}

/// Names of locks are those of the server.
#[tokio::test(flavor = "multi_thread")]
async fn databases_have_inboxes_of_their_own() {
    let Some(server) = shared_server() else { return };
    let [(one, _), (other, _)] = [in_new_database(&server), in_new_database(&server)];
    let (one, other) = (party_with(&one, vec![7]).await, party_with(&other, vec![7]).await);
    assert_eq!((one.backend.inbox(), other.backend.inbox()), (7, 7));
}

/// The former connection of the listener still holds the lock of the inbox.
#[tokio::test(flavor = "multi_thread")]
async fn inbox_is_claimed_again_from_a_former_connection() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (one, other) = pair(&url).await;
    for _ in 0..3 {
        other.backend.driver().server.reopen.notify_one();
        let gaps = other.gaps();
        until("a gap", async || other.gaps() > gaps).await;
        hear_again(&one, &other).await;
    }
    assert_eq!(
        one.backend.send(vec![Message { to: other.backend.inbox(), text: "x".into() }]).await.unwrap(),
        [0_u32; 0]
    );
}

/// A sender with another user may not end the statements of the receiver, who hears it a little later.
#[tokio::test(flavor = "multi_thread")]
async fn other_user_is_heard_all_the_same() {
    let Some(server) = shared_server() else { return };
    let (url, database) = in_new_database(&server);
    let user = format!("u{}", &database[1..9]);
    block_in_place(|| server.sql(&format!("CREATE USER {user}; GRANT ALL ON {database}.* TO {user}")));
    let one = party(&url.replace("locker@", &format!("{user}@"))).await;
    let (other, third) = pair(&url).await;
    hear_again(&one, &other).await;
    hear_again(&other, &one).await;
    // Those behind it are woken.
    let key = fresh("several");
    let to = |party: &Party<Mysql>| Message {
        to: party.backend.inbox(),
        text: format!("for {}", party.backend.inbox()),
    };
    let messages = vec![to(&one), to(&other), to(&third)];
    let outcome = one.exchange(Write { messages, ..write(&key, 0, b"x") }).await;
    assert!(matches!(outcome, Outcome::Matched { gone, .. } if gone.is_empty()));
    for party in [&one, &other, &third] {
        until("the message", async || party.texts().contains(&to(party).text)).await;
    }
}

/// The server carries out nothing behind the first receiver that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn those_behind_one_that_is_gone_are_woken() {
    let Some(server) = shared_server() else { return };
    let (url, _) = in_new_database(&server);
    let (sender, high) = (party(&url).await, party_with(&url, vec![4_000_000_000]).await);
    for gone in [&[1][..], &[1, 2_000_000_000]] {
        let mut quickest = Duration::MAX;
        for round in 0..5 {
            let text = format!("round {round} {gone:?}");
            let to = gone.iter().copied().chain([high.backend.inbox()]);
            let messages = to.map(|to| Message { to, text: text.clone() }).collect();
            let started = Timestamp::now();
            assert_eq!(sender.backend.send(messages).await.unwrap(), gone);
            until("the message", async || high.texts().contains(&text)).await;
            quickest = quickest.min(Timestamp::now().since(started));
        }
        assert!(
            quickest < Duration::from_millis(300),
            "it reads them by itself after a second: {quickest:?}"
        );
    }
}
