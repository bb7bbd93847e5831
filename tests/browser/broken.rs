//! Streams and sessions that end.

use crate::{
    stub::{Stub, names, row},
    support::Browser,
};
use axum::http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn broken_streams_are_said_and_opened_again() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 0)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#rows", "a").await;
    stub.refuse_streams(StatusCode::SERVICE_UNAVAILABLE);
    stub.end_streams();
    browser
        .until_text("#problem", "The server does not send this view now (not now): trying again in 1 s.")
        .await;
    stub.begin_with(&names(&[row("b", 0)]));
    browser.until_text("#rows", "b").await;
    browser.until("document.getElementById('problem').hidden").await;
    assert_eq!(
        browser.value("document.getElementById('status').textContent").await,
        "The page is up to date again."
    );
    browser.close().await;
}

#[tokio::test]
async fn lost_servers_are_said() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 0)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#rows", "a").await;
    stub.send("error", &json!({ "text": "unavailable: no connection" }));
    browser.until_text("#problem", "The store cannot be read: unavailable: no connection").await;
    stub.end_streams();
    browser.until_text("#problem", "The connection to the server is lost: trying again.").await;
    browser.close().await;
}

#[tokio::test]
async fn ended_sessions_ask_for_a_token() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 0)])).await;
    browser.open(&stub.url("/#/names?order=name")).await;
    browser.until_text("#rows", "a").await;
    stub.refuse_streams(StatusCode::UNAUTHORIZED);
    stub.end_streams();
    browser.until_text("#login-reason", "Session over: log in again.").await;
    assert!(!browser.is_shown("#names").await);
    assert_eq!(browser.value("document.activeElement.id").await, "token");
    // The view is the one from before.
    stub.begin_with(&names(&[row("b", 0)]));
    browser.press("secret\u{e007}").await;
    browser.until_text("#rows", "b").await;
    assert_eq!(browser.value("location.hash").await, "#/names?order=name");
    assert_eq!(stub.changes(), ["POST /session 1"]);
    browser.close().await;
}

#[tokio::test]
async fn failed_logins_and_logouts_are_said() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 0)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#rows", "a").await;
    stub.answer_changes(StatusCode::SERVICE_UNAVAILABLE);
    browser.click("#log-out").await;
    browser
        .until_text("#problem", "You are still logged in: the server did not end the session. Try again.")
        .await;
    assert!(browser.is_shown("#names").await);
    stub.answer_changes(StatusCode::NO_CONTENT);
    stub.set_role(None);
    browser.click("#log-out").await;
    browser.until_text("#login-title", "Log in").await;
    assert!(!browser.is_shown("#problem").await);
    // Nothing of what was shown is left in the document.
    assert_eq!(browser.value("document.querySelectorAll('#rows tr').length").await, 0);
    assert_eq!(browser.value("document.getElementById('holds').textContent").await, "-");
    for (status, reason) in [
        (StatusCode::UNAUTHORIZED, "This is not a token of the server."),
        (StatusCode::SERVICE_UNAVAILABLE, "The server refuses the login: 503"),
        (StatusCode::NO_CONTENT, "The token is right, but the server does not get the session back"),
    ] {
        stub.answer_changes(status);
        browser.press("secret\u{e007}").await;
        browser.until_text("#login-reason", reason).await;
    }
    stub.set_role(Some("full"));
    browser.press("secret\u{e007}").await;
    browser.until_text("#rows", "a").await;
    browser.close().await;
}

/// A page that is left or paused asks a server for nothing.
#[tokio::test]
async fn streams_close_with_the_page() {
    let Some(browser) = Browser::start().await else { return };
    let stub = Stub::start(&names(&[row("a", 0)])).await;
    browser.open(&stub.url("/")).await;
    browser.until_text("#rows", "a").await;
    stub.until_open(1).await;
    browser.click("#pause").await;
    stub.until_open(0).await;
    browser.click("#pause").await;
    stub.until_open(1).await;
    browser.open("about:blank").await;
    stub.until_open(0).await;
    browser.close().await;
}
