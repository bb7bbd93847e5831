//! A browser, started for a test.

use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource, KeyAction, KeyActions},
};
use hyper_util::client::legacy::connect::HttpConnector;
use locker_harness::{Chromedriver, Shared, missing};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const LIGHT: &str = "--blink-settings=preferredColorScheme=1";
pub(crate) const DARK: &str = "--blink-settings=preferredColorScheme=0";

/// The keys as drivers of browsers write them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";

static DRIVER: Shared<Chromedriver> = Shared::new();

/// A browser with one window. Its driver ends it if the test fails.
pub(crate) struct Browser {
    client: Client,
    _driver: Arc<Chromedriver>,
}

impl Browser {
    pub(crate) async fn start() -> Option<Self> {
        Self::with(LIGHT).await
    }

    /// Starts a browser with a further flag. Returns `None` if there is none.
    pub(crate) async fn with(flag: &str) -> Option<Self> {
        let driver = DRIVER.get(Chromedriver::start)?;
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            "--window-size=1200,900",
            flag,
        ];
        let options = json!({ "goog:chromeOptions": { "args": flags } });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(options.as_object().unwrap().clone());
        let client = builder.connect(&driver.url()).await.unwrap();
        Some(Self { client, _driver: driver })
    }

    pub(crate) async fn close(self) {
        self.client.close().await.unwrap();
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Returns the value of an expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        self.client.execute(&format!("return {expression}"), Vec::new()).await.unwrap()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let wait = format!(
            "const check = () => {expression} ? arguments[0]() : setTimeout(check, 20);
             check();"
        );
        if let Err(error) = self.client.execute_async(&wait, Vec::new()).await {
            panic!("waited for {expression}: {error}\n{}", self.text("body").await);
        }
    }

    /// Waits until an element shows a text. The `innerText` of a hidden one is not empty.
    pub(crate) async fn until_text(&self, css: &str, text: &str) {
        let element = format!("document.querySelector({css:?})");
        self.until(&format!("{element}?.checkVisibility() && {element}.innerText.includes({})", json!(text)))
            .await;
    }

    /// Returns the text that a reader sees.
    pub(crate) async fn text(&self, css: &str) -> String {
        let text = self.value(&format!("document.querySelector({css:?}).innerText")).await;
        text.as_str().unwrap().to_owned()
    }

    pub(crate) async fn is_shown(&self, css: &str) -> bool {
        self.client.find(Locator::Css(css)).await.unwrap().is_displayed().await.unwrap()
    }

    pub(crate) async fn click(&self, css: &str) {
        self.client.find(Locator::Css(css)).await.unwrap().click().await.unwrap();
    }

    /// Returns the visible part of the page as a PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// Presses keys one after the other, whatever has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|value| [KeyAction::Down { value }, KeyAction::Up { value }]);
        let actions = actions.fold(KeyActions::new("keys".to_owned()), InputSource::then);
        self.client.perform_actions(actions).await.unwrap();
    }

    /// Presses Tab until an element has the focus.
    pub(crate) async fn tab_to(&self, css: &str) {
        for _ in 0..40 {
            if self.value(&format!("document.activeElement.matches({css:?})")).await == json!(true) {
                return;
            }
            self.press(TAB).await;
        }
        panic!("{css} is not reached:\n{}", self.text("body").await);
    }

    /// Returns the rules for accessible pages that the page breaks. Returns `None` if there is no axe-core.
    pub(crate) async fn violations(&self) -> Option<Vec<Value>> {
        let Some(file) = std::env::var_os("LOCKER_TEST_AXE") else {
            return missing("there is no axe-core: run scripts/setup-browser.sh");
        };
        self.client.execute(&std::fs::read_to_string(file).unwrap(), Vec::new()).await.unwrap();
        let run = "const found = (rule) => [rule.id, ...rule.nodes.map((node) => node.target + node.failureSummary)];
                   axe.run().then(({ violations }) => arguments[0](violations.map(found)));";
        let found = self.client.execute_async(run, Vec::new()).await.unwrap();
        Some(found.as_array().unwrap().clone())
    }
}
