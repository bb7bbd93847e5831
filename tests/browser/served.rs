//! The page as the real server serves it.

use crate::{
    server::{Server, answer, client},
    support::{Browser, ENTER},
};
use serde_json::json;
use std::io::Write;

const FULL: &str = "full-full-full-full-full-full-full-full";
const READ: &str = "read-read-read-read-read-read-read-read";

/// A server with a token for each role.
fn with_tokens(http: &str) -> (Server, tempfile::NamedTempFile) {
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    writeln!(tokens, "{FULL}\n{READ} read").unwrap();
    let server = Server::start_at(http, "off", &["--token-file", tokens.path().to_str().unwrap()]);
    (server, tokens)
}

async fn call(server: &Server, path: &str) -> u16 {
    answer(client().post(server.url(path)).bearer_auth(FULL)).await.status
}

async fn log_in(browser: &Browser, server: &Server, token: &str) {
    browser.open(&server.url("/")).await;
    browser.until("document.activeElement.id === 'token'").await;
    browser.press(&format!("{token}{ENTER}")).await;
    browser.until_text("#count", "shown").await;
}

#[tokio::test]
async fn held_names_are_the_first_rows() {
    let Some(browser) = Browser::start().await else { return };
    let server = Server::start(&[]);
    server.post("/v1/lock/invoice-7/acquire").await;
    server.post("/v1/semaphore/db/acquire?size=3").await;
    let _waiting = server.queue("/v1/lock/invoice-7/acquire", "lock/invoice-7", 0).await;
    browser.open(&server.url("/")).await;
    browser.until_text("#count", "2 of 2 shown").await;
    let (first, second) = (browser.text("#rows tr").await, browser.text("#rows tr:nth-child(2)").await);
    assert!(first.starts_with("invoice-7") && first.contains("lock") && first.contains("1 of 1"), "{first}");
    assert!(
        second.starts_with("db") && second.contains("semaphore") && second.contains("1 of 3"),
        "{second}"
    );
    assert_eq!(browser.text("#holds").await, "2");
    assert_eq!(browser.text("#waiting").await, "1");
    browser.close().await;
}

#[tokio::test]
async fn rows_change_while_the_page_is_open() {
    let Some(browser) = Browser::start().await else { return };
    let server = Server::start(&[]);
    browser.open(&server.url("/")).await;
    browser.until_text("#nothing", "No name is in use.").await;
    server.post("/v1/lock/a/acquire?key=me").await;
    browser.until_text("#rows", "a").await;
    let waiting = server.queue("/v1/lock/a/acquire?key=next", "lock/a", 0).await;
    browser.until("document.querySelector('#rows td:nth-child(4)').textContent === '1'").await;
    server.post("/v1/lock/a/release?key=me").await;
    assert_eq!(waiting.await.unwrap().status, 200);
    browser.until("document.querySelector('#rows td:nth-child(4)').textContent === '0'").await;
    server.post("/v1/lock/a/release?key=next").await;
    browser.until("document.querySelectorAll('#rows tr').length === 0").await;
    browser.close().await;
}

#[tokio::test]
async fn search_kind_and_order_choose_rows() {
    let Some(browser) = Browser::start().await else { return };
    let server = Server::start(&[]);
    for path in ["lock/b-lock", "lock/a-lock", "semaphore/a-semaphore"] {
        server.post(&format!("/v1/{path}/acquire")).await;
    }
    let _waiting = server.queue("/v1/lock/b-lock/acquire", "lock/b-lock", 0).await;
    let shown = |names: &str| {
        let links = "[...document.querySelectorAll('#rows th a')].map((link) => link.textContent).join()";
        format!("{links} === '{names}'")
    };
    browser.open(&server.url("/")).await;
    browser.until_text("#rows tr", "b-lock").await;
    browser.click("[data-order=name] button").await;
    browser.until(&shown("a-lock,a-semaphore,b-lock")).await;
    browser.click("#prefix").await;
    browser.press("a-").await;
    browser.until(&shown("a-lock,a-semaphore")).await;
    browser.until_text("#count", "2 of 2 shown, 3 names in all").await;
    browser.click("#kind option:nth-child(4)").await;
    browser.until(&shown("a-semaphore")).await;
    assert_eq!(browser.value("location.hash").await, "#/names?prefix=a-&kind=semaphore&order=name");
    browser.close().await;
}

#[tokio::test]
async fn keyboard_leads_from_login_to_a_release() {
    let Some(browser) = Browser::start().await else { return };
    let (server, _tokens) = with_tokens("127.0.0.1:0");
    assert_eq!(call(&server, "/v1/lock/invoice/acquire?key=me").await, 200);
    let url = server.url("/v1/lock/invoice/acquire");
    let waiting = tokio::spawn(answer(client().post(url).bearer_auth(FULL)));
    log_in(&browser, &server, FULL).await;
    browser.tab_to("#prefix").await;
    browser.press("inv").await;
    browser.until_text("#rows", "invoice").await;
    browser.tab_to("#rows a").await;
    browser.press(ENTER).await;
    browser.until_text("#waiters-count", "1 caller waits").await;
    browser.until("document.querySelector('#holders td:nth-child(4)').textContent.endsWith(' s')").await;
    assert_eq!(browser.value("document.querySelectorAll('#waiters li').length").await, 1);
    browser.tab_to("#release").await;
    browser.press(ENTER).await;
    browser.until("document.activeElement.id === 'confirm-name'").await;
    browser.press(&format!("invoice{ENTER}")).await;
    browser.until_text("#status", "Released by force: invoice.").await;
    assert_eq!(waiting.await.unwrap().status, 200, "the next waiter is served");
    browser.until_text("#waiters-count", "Nobody waits.").await;
    browser.close().await;
}

#[tokio::test]
async fn sessions_that_read_release_nothing() {
    let Some(browser) = Browser::start().await else { return };
    let (server, _tokens) = with_tokens("127.0.0.1:0");
    assert_eq!(call(&server, "/v1/lock/a/acquire?key=me").await, 200);
    log_in(&browser, &server, READ).await;
    browser.until_text("#role", "may only read").await;
    browser.click("#rows a").await;
    browser.until("document.querySelector('#holders tbody tr')").await;
    assert!(!browser.is_shown("#release").await);
    let tried = "document.status = null; \
                 fetch('/v1/lock/a', { method: 'DELETE', headers: { 'X-Locker-Page': '1' } }) \
                 .then((answer) => { document.status = answer.status; })";
    browser.value(&format!("(() => {{ {tried} }})()")).await;
    browser.until("document.status").await;
    assert_eq!(browser.value("document.status").await, 403);
    assert_eq!(call(&server, "/v1/lock/a/renew?key=me").await, 204);
    browser.close().await;
}

#[tokio::test]
async fn nothing_is_loaded_from_elsewhere() {
    let Some(browser) = Browser::start().await else { return };
    let server = Server::start(&[]);
    server.post("/v1/lock/a/acquire").await;
    browser.open(&server.url("/")).await;
    browser.until_text("#rows", "a").await;
    let loaded = browser.value("performance.getEntriesByType('resource').map((entry) => entry.name)").await;
    let own = server.url("/");
    let loaded: Vec<_> = loaded.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(loaded.len() >= 3 && loaded.iter().all(|name| name.starts_with(&own)), "{loaded:?}");
    // The policy would refuse it.
    let refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'run'; } \
                   catch { return 'refused'; } })()";
    assert_eq!(browser.value(refused).await, "refused");
    browser
        .value(
            "(() => { const image = new Image(); image.onerror = () => { document.status = 'refused'; }; \
                   image.src = 'http://127.0.0.1:9/x.png'; })()",
        )
        .await;
    browser.until("document.status === 'refused'").await;
    browser.close().await;
}

#[tokio::test]
async fn sessions_end_with_the_server() {
    let Some(browser) = Browser::start().await else { return };
    let http = format!("127.0.0.1:{}", crate::server::free_port());
    let (server, tokens) = with_tokens(&http);
    assert_eq!(call(&server, "/v1/lock/a/acquire").await, 200);
    log_in(&browser, &server, FULL).await;
    browser.until_text("#rows", "a").await;
    drop((server, tokens));
    browser.until_text("#problem", "The connection to the server is lost").await;
    let (server, _tokens) = with_tokens(&http);
    browser.until_text("#login-reason", "Session over: log in again.").await;
    log_in(&browser, &server, READ).await;
    browser.click("#log-out").await;
    browser.until("document.activeElement.id === 'token'").await;
    assert_eq!(browser.value("document.getElementById('login-reason').hidden").await, json!(true));
    browser.close().await;
}
