//! `/live`: the streams of the page.

use super::{
    super::{access::Caller, context::Context, stream::Client, tokens::Role},
    Shared,
};
use crate::{
    api::{Answer, each_parameter, once},
    live::{Event, KeyView, NamesView, View},
};
use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, Method, Uri},
    response::{
        IntoResponse, Response,
        sse::{Event as SentEvent, Sse},
    },
};
use futures_util::{Stream, StreamExt, stream};
use hyper::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use locker_runtime::Key;
use std::{convert::Infallible, sync::Arc};

const NAMES: [&str; 5] = ["view", "prefix", "kind", "order", "key"];

/// What a stream shows.
enum Shown {
    Names(View),
    Key(Key),
}

/// The batches of a stream.
enum Batches {
    Names(Box<NamesView>),
    Key(Box<KeyView>),
}

pub(super) async fn live(
    State(context): Shared,
    Extension(client): Extension<Client>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let batches = match context.access.caller(&headers) {
        Ok(caller) => context.batches(caller, uri.query().unwrap_or_default()),
        Err(refusal) => return context.refuse(&Method::GET, uri.path(), refusal),
    };
    match batches {
        Ok(batches) => sent(events(context, client, headers, batches)),
        Err(refusal) => context.page(refusal),
    }
}

impl Context {
    fn batches(&self, caller: Caller, query: &str) -> Result<Batches, Answer> {
        let shown = parse(query)?;
        if let Shown::Key(key) = &shown {
            self.server.live.check(key)?;
        }
        let permit = self.server.live.stream()?;
        Ok(match shown {
            Shown::Names(view) => Batches::Names(Box::new(NamesView::new(permit, view))),
            Shown::Key(key) => Batches::Key(Box::new(KeyView::new(permit, key, caller.role == Role::Full))),
        })
    }
}

/// The events until the client disconnects, its session ends or the server shuts down. A client that reads slowly gets
/// fewer batches: each is made when the one before it was sent.
fn events(
    context: Arc<Context>,
    client: Client,
    headers: HeaderMap,
    batches: Batches,
) -> impl Stream<Item = Result<SentEvent, Infallible>> + Send {
    let batches = stream::unfold((context, client, batches), move |(context, client, mut batches)| {
        let headers = headers.clone();
        async move {
            let batch = tokio::select! {
                biased;
                () = context.server.shutdown.cancelled() => return None,
                () = client.disconnected() => return None,
                batch = batches.next() => batch,
            };
            // The session may have ended.
            let is_allowed = context.access.caller(&headers).is_ok();
            is_allowed.then_some((batch, (context, client, batches)))
        }
    });
    batches.flat_map(stream::iter).map(|Event { name, data }| Ok(SentEvent::default().event(name).data(data)))
}

impl Batches {
    async fn next(&mut self) -> Vec<Event> {
        match self {
            Self::Names(view) => view.batch().await,
            Self::Key(view) => view.batch().await,
        }
    }
}

fn sent(events: impl Stream<Item = Result<SentEvent, Infallible>> + Send + 'static) -> Response {
    let mut response = Sse::new(events).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Parses the query.
///
/// # Errors
/// 400 with the reason, which names the parameter.
fn parse(query: &str) -> Result<Shown, Answer> {
    let (mut shows, mut key, mut view): (Option<Box<str>>, Option<Key>, View) = Default::default();
    let mut of_names = None;
    each_parameter(query, "", &NAMES, |name, value| {
        match name {
            "view" => return once(name, &mut shows, value.into()),
            "key" => return once(name, &mut key, Key::new(value)),
            "prefix" => once(name, &mut view.prefix, value.into()),
            "kind" => view.set_kind(value),
            _ => view.set_order(value),
        }?;
        of_names = Some(name);
        Ok(())
    })?;
    let bad = |reason: String| Err(Answer::bad_request(reason));
    match (shows.as_deref(), key, of_names) {
        (Some("names"), None, _) => Ok(Shown::Names(view)),
        (Some("names"), Some(_), _) => bad("key is for view=key only".into()),
        (Some("key"), Some(key), None) => Ok(Shown::Key(key)),
        (Some("key"), None, _) => bad("key is missing: give the whole key, as GET /v1 lists it".into()),
        (Some("key"), _, Some(name)) => bad(format!("{name} is for view=names only")),
        _ => bad("view is missing or unknown: give view=names or view=key".into()),
    }
}
