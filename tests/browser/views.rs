//! What the views show, and what they do.

use crate::{
    stub::{Stub, key, names, row, totals},
    support::{Browser, ENTER, ESCAPE},
};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// The keys of the rows, from the top.
const ROWS: &str = "[...document.querySelectorAll('#rows th a')].map((link) => link.textContent).join()";

#[tokio::test]
async fn rows_say_what_is_left_out() {
    let Some(browser) = Browser::start().await else { return };
    let rows: Vec<_> = (0..200).map(|number| row(&format!("name {number}"), 3)).collect();
    let stub = Stub::start(&names(&rows)).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#count", "200 of 200 shown").await;
    stub.send("totals", &totals(12_345, 200));
    browser.until_text("#count", "200 of 12,345 shown").await;
    let cells = browser.text("#rows tr").await;
    for text in ["name 0", "lock", "1 of 1", "3", "1 min"] {
        assert!(cells.contains(text), "{text} in {cells}");
    }
    // The times go on.
    assert!(cells.contains("1 h") || cells.contains("59 min"), "{cells}");
    assert_eq!(browser.value("document.querySelectorAll('#rows tr').length").await, json!(200));
    assert_eq!(browser.text("#grants").await, "3.5");
    assert_eq!(browser.value("document.querySelectorAll('.chart svg path[d^=M]').length").await, json!(3));
    browser.close().await;
}

#[tokio::test]
async fn names_of_others_stay_text() {
    let Some(browser) = Browser::start().await else { return };
    let hostile = "<img src=x onerror=\"document.title='run'\">\u{202e}txt\n</a>";
    let long = "long ".repeat(2000);
    let stub = Stub::start(&names(&[row(hostile, 0), row(&long, 0)])).await;
    browser.open(&stub.url("/")).await;
    let shown = "<img src=x onerror=\"document.title='run'\">\\u{202e}txt\\u{a}</a>";
    browser.until_text("#rows", shown).await;
    assert!(browser.text("#rows").await.len() < 500, "the long name is cut");
    // Its own view, and the dialog.
    stub.begin_with(&key(hostile, 0, &format!("lock:{hostile}"), false));
    browser.click("#rows a").await;
    browser.until_text("#key-title", shown).await;
    browser.click("#release").await;
    browser.until_text("#confirm-title", "<img src=x").await;
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, json!(0));
    assert_ne!(browser.value("document.title").await, json!("run"));
    assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth").await, json!(true));
    browser.close().await;
}

#[tokio::test]
async fn changes_move_rows_and_keep_the_focus() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 3), row("b", 2), row("c", 1)])).await;
    browser.open(&stub.url("/")).await;
    browser.until(&format!("{ROWS} === 'a,b,c'")).await;
    browser.tab_to("#rows tr:nth-child(3) a").await;
    let order = ["lock:c", "lock:d", "lock:a"];
    stub.send("changes", &json!({ "put": [row("c", 9), row("d", 8)], "gone": ["lock:b"], "order": order }));
    browser.until(&format!("{ROWS} === 'c,d,a'")).await;
    assert_eq!(browser.value("document.activeElement.textContent").await, json!("c"));
    assert!(browser.text("#rows tr").await.contains('9'));
    browser.close().await;
}

#[tokio::test]
async fn filters_are_in_the_address() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 3)])).await;
    browser.open(&stub.url("/#/names?prefix=ab%26c&kind=semaphore&order=age")).await;
    browser.until_text("#count", "1 of 1 shown").await;
    assert_eq!(stub.last_query(), "view=names&prefix=ab%26c&kind=semaphore&order=age");
    assert_eq!(browser.value("document.getElementById('prefix').value").await, json!("ab&c"));
    let sorted = "document.querySelector('[data-order=age]').getAttribute('aria-sort')";
    assert_eq!(browser.value(sorted).await, json!("descending"));
    browser.click("[data-order=name] button").await;
    browser.until("location.hash === '#/names?prefix=ab%26c&kind=semaphore&order=name'").await;
    browser.until_text("#status", "1 of 1 shown").await;
    assert_eq!(stub.last_query(), "view=names&prefix=ab%26c&kind=semaphore&order=name");
    browser.close().await;
}

#[tokio::test]
async fn deadlocks_are_red_and_named() {
    let Some(browser) = Browser::start().await else { return };
    let text = "lock:account\nheld by web-3:4711\n  waits for lock:card\n    held by web-8:20\n\
                deadlock: would wait for itself: bank.pay holds lock:card and waits for lock:account";
    let stub = Stub::start(&key("account", 1, text, true)).await;
    browser.open(&stub.url("/#/key?key=lock%3Aaccount")).await;
    browser.until_text("#deadlock", "Deadlock").await;
    let color = browser.value("getComputedStyle(document.querySelector('.deadlock-line')).color").await;
    assert_eq!(color, json!("rgb(179, 38, 30)"));
    assert!(browser.text(".deadlock-line").await.contains("bank.pay holds lock:card"));
    // What is indented more is below.
    let below = browser.text("#explained > ul > li:nth-child(2) > ul > li > ul").await;
    assert_eq!(below.trim(), "held by web-8:20");
    assert!(browser.text("#status").await.is_empty() || browser.text("#status").await.contains("Deadlock"));
    browser.close().await;
}

#[tokio::test]
async fn own_views_tell_holders_and_history() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&key("a", 2, "lock:a", false)).await;
    browser.open(&stub.url("/#/key?key=lock%3Aa")).await;
    browser.until_text("#holders tbody", "web-3:4711").await;
    assert!(!browser.is_shown("#holders-cut").await);
    let holder = browser.text("#holders tbody").await;
    assert!(holder.contains("17") && holder.matches(" s").count() == 2, "age and time left in {holder}");
    assert_eq!(browser.text("#waiters-count").await, "2 callers wait");
    assert_eq!(browser.value("document.querySelectorAll('#waiters li').length").await, json!(2));
    let happened = browser.text("#server-events tbody").await;
    assert!(happened.contains("granted") && happened.contains("250 ms"), "{happened}");
    assert_eq!(browser.text("#elsewhere").await, "Nothing yet.");
    assert!(!browser.is_shown("#deadlock").await);
    browser.close().await;
}

#[tokio::test]
async fn release_wants_the_name_if_others_wait() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&key("its name", 2, "lock:its name", false)).await;
    browser.open(&stub.url("/#/key?key=lock%3Aits%20name")).await;
    browser.until_text("#release", "Release by force").await;
    browser.click("#release").await;
    let lost = browser.text("#confirm-lost").await;
    assert_eq!(lost, "1 hold ends: web-3:4711 (fence 17). 2 callers wait: the next is served at once.");
    browser.press(&format!("another{ENTER}")).await;
    browser.until_text("#confirm-problem", "This is not the name.").await;
    assert!(stub.changes().is_empty());
    browser.press(&format!("its name{ENTER}")).await;
    browser.until_text("#status", "Released by force: its name.").await;
    assert_eq!(stub.changes(), ["DELETE /v1/lock/its-name 1"]);
    assert!(!browser.is_shown("#confirm").await);
    browser.close().await;
}

#[tokio::test]
async fn release_can_be_given_up() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&key("a", 0, "lock:a", false)).await;
    browser.open(&stub.url("/#/key?key=lock%3Aa")).await;
    browser.until_text("#release", "Release by force").await;
    browser.click("#release").await;
    assert!(!browser.is_shown("#confirm-typed").await, "nobody waits");
    browser.press(ESCAPE).await;
    browser.until("!document.getElementById('confirm').open").await;
    assert!(stub.changes().is_empty());
    // A session that may only read is not asked.
    stub.set_role(Some("read"));
    browser.open(&stub.url("/?again#/key?key=lock%3Aa")).await;
    browser.until_text("#role", "may only read").await;
    browser.until_text("#holders tbody", "web-3:4711").await;
    assert!(!browser.is_shown("#release").await);
    browser.close().await;
}

/// Returns the event of a key whose holder has this fence, or that nobody holds.
fn held_with(name: &str, fence: Option<u64>) -> Value {
    let mut told = key(name, 1, "lock", false).swap_remove(0).1;
    if let Some(fence) = fence {
        told["explained"]["holders"][0]["fence"] = json!(fence);
        told["release"]["path"] = json!(format!("/v1/lock/{name}?fence={fence}"));
    } else {
        told["explained"]["holders"] = json!([]);
        told["holders_in_all"] = json!(0);
        told["release"] = Value::Null;
    }
    told
}

/// Whoever was granted it while the dialog was open is another than the one that was shown.
#[tokio::test]
async fn release_ends_only_what_was_shown() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&[("key", held_with("a", Some(17)))]).await;
    browser.open(&stub.url("/#/key?key=lock%3Aa")).await;
    stub.until_open(1).await;
    let mut both = held_with("a", Some(17));
    let holders = both["explained"]["holders"].as_array_mut().unwrap();
    holders.push(held_with("a", Some(20))["explained"]["holders"][0].clone());
    both["release"]["path"] = json!("/v1/lock/a?fence=20");
    for (next, message) in [
        (Some(18), "None of these holds is left: cancel, and look again."),
        (None, "It is not held any more."),
    ] {
        stub.send("key", &held_with("a", Some(17)));
        browser.until_text("#holders tbody", "17").await;
        browser.click("#release").await;
        browser.press("a").await;
        // Another permit was granted, and the one that was shown is still held.
        stub.send("key", &both);
        browser.until_text("#holders tbody", "20").await;
        assert!(!browser.is_shown("#confirm-problem").await);
        stub.send("key", &held_with("a", next));
        browser.until_text("#confirm-problem", message).await;
        browser.press(ENTER).await;
        assert!(browser.is_shown("#confirm").await);
        assert!(browser.text("#confirm-lost").await.contains("fence 17"), "what was asked about stays");
        browser.press(ESCAPE).await;
        browser.until("!document.getElementById('confirm').open").await;
    }
    assert!(stub.changes().is_empty());
    stub.send("key", &held_with("a", Some(19)));
    browser.until_text("#holders tbody", "19").await;
    browser.click("#release").await;
    browser.press(&format!("a{ENTER}")).await;
    browser.until_text("#status", "Released by force: a.").await;
    assert_eq!(stub.changes(), ["DELETE /v1/lock/a 1"]);
    browser.close().await;
}

#[tokio::test]
async fn refused_release_can_be_tried_again() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&[("key", held_with("a", Some(17)))]).await;
    stub.answer_changes(StatusCode::SERVICE_UNAVAILABLE);
    browser.open(&stub.url("/#/key?key=lock%3Aa")).await;
    browser.until_text("#release", "Release by force").await;
    browser.click("#release").await;
    browser.press(&format!("a{ENTER}")).await;
    browser.until_text("#confirm-problem", "Not released: 503").await;
    stub.answer_changes(StatusCode::NO_CONTENT);
    browser.press(ENTER).await;
    browser.until_text("#status", "Released by force: a.").await;
    assert_eq!(stub.changes().len(), 2);
    browser.close().await;
}

/// What is shown in a pause is the result of the former filter.
#[tokio::test]
async fn filter_ends_a_pause() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 3)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#count", "1 of 1 shown").await;
    browser.click("#pause").await;
    browser.until_text("#status", "Paused.").await;
    stub.until_open(0).await;
    browser.click("[data-order=age] button").await;
    browser.until_text("#status", "1 of 1 shown").await;
    assert_eq!(stub.last_query(), "view=names&order=age");
    assert_eq!(
        browser.value("document.getElementById('pause').getAttribute('aria-pressed')").await,
        json!("false")
    );
    browser.close().await;
}

#[tokio::test]
async fn partial_overview_claims_nothing() {
    let Some(browser) = Browser::start().await else { return };
    let mut partial = totals(0, 0);
    partial["whole"] = json!(false);
    let stub = Stub::start(&[("totals", partial)]).await;
    browser.open(&stub.url("/")).await;
    stub.until_open(1).await;
    browser.until_text("#count", "0 of 0 shown, and the server still looks for more").await;
    assert!(!browser.is_shown("#nothing").await);
    stub.send("totals", &totals(0, 0));
    browser.until_text("#nothing", "No name is in use.").await;
    browser.close().await;
}

#[tokio::test]
async fn many_holders_are_counted() {
    let Some(browser) = Browser::start().await else { return };
    let mut told = held_with("a", Some(17));
    told["holders_in_all"] = json!(1_234);
    let stub = Stub::start(&[("key", told)]).await;
    browser.open(&stub.url("/#/key?key=lock%3Aa")).await;
    browser.until_text("#holders-cut", "The first 1 of 1,234.").await;
    browser.click("#release").await;
    browser.until_text("#confirm-lost", "1,234 holds end: web-3:4711 (fence 17), ...").await;
    browser.close().await;
}
