//! The page's files, compressed when they were built (`crates/admin/web`), and what a browser may do with them.

use crate::Shared;
use crate::problem::Problem;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use std::sync::Arc;

/// A path, its media type, its bytes, and for how long a browser may keep it: names within the page change with it.
type File = (&'static str, &'static str, &'static [u8], &'static str);

const FILES: [File; 4] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../../web/dist/index.html.gz"), "no-cache"),
    (
        "/assets/app.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../web/dist/app.js.gz"),
        "max-age=31536000, immutable",
    ),
    (
        "/assets/uplot.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../web/dist/uplot.js.gz"),
        "max-age=31536000, immutable",
    ),
    (
        "/assets/icon.svg",
        "image/svg+xml",
        include_bytes!("../../web/dist/icon.svg.gz"),
        "max-age=86400",
    ),
];

/// No script, style, image or connection but this port's own; nothing may frame the page.
const POLICY: &str = concat!(
    "default-src 'none'; script-src 'self' ",
    // of the script and the style sheet within the page
    include_str!("../../web/dist/script.sha256"),
    "; style-src 'self' ",
    include_str!("../../web/dist/style.sha256"),
    "; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
);

const FIELDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(name, ..)| *name == path)
}

pub(super) fn router() -> Router<Arc<Shared>> {
    FILES.into_iter().fold(Router::new(), |router, file| {
        router.route(file.0, get(move |headers: HeaderMap| async move { answer(file, &headers) }))
    })
}

fn answer((_, kind, bytes, keep): File, headers: &HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepts = |field: &HeaderValue| field.to_str().is_ok_and(|field| field.contains("gzip"));
    if !accepted.into_iter().any(accepts) {
        let why = "the page is kept compressed, and this client does not accept gzip";
        return Problem::new(StatusCode::NOT_ACCEPTABLE, "encoding", why)
            .hint("Accept-Encoding: gzip, as curl --compressed sends")
            .into_response();
    }
    let fields = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_ENCODING, "gzip"),
        (header::VARY, "accept-encoding"),
        (header::CACHE_CONTROL, keep),
    ];
    (fields, bytes).into_response()
}

/// Adds to every answer of the port what a browser may do with it. What is no file of the page is not to be stored.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
