//! The rules of axe-core in each view.

use crate::{
    stub::{Stub, key, names, row},
    support::{Browser, DARK, LIGHT},
};
use axum::http::StatusCode;

async fn check(browser: &Browser, view: &str) -> Option<()> {
    let broken = browser.violations().await?;
    assert!(broken.is_empty(), "{view}: {broken:#?}");
    Some(())
}

async fn check_all(flag: &str) -> Option<()> {
    let browser = Browser::with(flag).await?;
    let stub = Stub::start(&names(&[row("a", 3), row("b", 0)])).await;
    stub.set_role(None);
    browser.open(&stub.url("/")).await;
    browser.until_text("#login", "Token").await;
    check(&browser, "login").await?;
    stub.set_role(Some("read"));
    browser.open(&stub.url("/?again")).await;
    browser.until_text("#rows", "a").await;
    check(&browser, "names").await?;
    stub.refuse_streams(StatusCode::SERVICE_UNAVAILABLE);
    stub.end_streams();
    browser.until_text("#problem", "trying again").await;
    check(&browser, "problem").await?;
    let text = "lock:a\nheld by web-3\n  waits for lock:b\ndeadlock: would wait for itself";
    stub.begin_with(&key("a", 2, text, true));
    stub.set_role(Some("full"));
    browser.open(&stub.url("/?key#/key?key=lock%3Aa")).await;
    browser.until_text("#deadlock", "Deadlock").await;
    check(&browser, "key").await?;
    browser.click("#release").await;
    browser.until_text("#confirm", "2 callers wait").await;
    check(&browser, "dialog").await?;
    browser.close().await;
    Some(())
}

#[tokio::test]
async fn views_keep_the_rules_in_light() {
    let _ = check_all(LIGHT).await;
}

#[tokio::test]
async fn views_keep_the_rules_in_the_dark() {
    let _ = check_all(DARK).await;
}

#[tokio::test]
async fn motion_ends_where_it_is_not_wanted() {
    let Some(browser) = Browser::with("--force-prefers-reduced-motion").await else { return };
    let stub = Stub::start(&names(&[row("a", 3)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#rows", "a").await;
    stub.send("changes", &serde_json::json!({ "put": [row("b", 1)] }));
    browser.until_text("#rows", "b").await;
    assert_eq!(browser.value("document.getAnimations().length").await, 0);
    browser.close().await;
}
