//! The files of the page.

use super::{super::context::Context, only_get};
use axum::{
    Router,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use std::{fmt::Write, sync::Arc};

/// Nothing is loaded from elsewhere, and no text becomes a program.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// A file of the page.
#[derive(Clone, Copy)]
struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        text: include_str!("../../page/index.html"),
    },
    Asset {
        path: "/page.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../page/page.js"),
    },
    Asset {
        path: "/page.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("../../page/page.css"),
    },
];

/// Adds the routes of the page. They need no token.
pub(super) fn add(router: Router<Arc<Context>>) -> Router<Arc<Context>> {
    ASSETS.into_iter().fold(router, |router, asset| {
        let (path, tag) = (asset.path, tag(asset.text));
        router.route(path, only_get(move |headers: HeaderMap| async move { asset.response(&tag, &headers) }))
    })
}

impl Asset {
    fn response(&self, tag: &HeaderValue, request: &HeaderMap) -> Response {
        let headers = [
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (ETAG, tag.clone()),
        ];
        if request.get(IF_NONE_MATCH) == Some(tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, [(CONTENT_TYPE, self.content_type)], self.text).into_response()
    }
}

fn tag(text: &str) -> HeaderValue {
    let mut tag = String::from("\"");
    for byte in &Sha256::digest(text)[..16] {
        // Writing to a string cannot fail.
        let _ = write!(tag, "{byte:02x}");
    }
    HeaderValue::from_str(&(tag + "\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}
