//! The page's files, compressed when they were built (`crates/admin/web`), and what a browser may do with them.

use crate::Shared;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

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
    FILES.into_iter().enumerate().fold(Router::new(), |router, (nth, file)| {
        let answer = move |headers: HeaderMap| async move { answer(nth, file, &headers) };
        router.route(file.0, get(answer))
    })
}

/// A file of [`FILES`] as it was before it was compressed.
fn unpacked(nth: usize) -> &'static [u8] {
    // once: everybody on this machine may ask
    static UNPACKED: [OnceLock<Vec<u8>>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    UNPACKED[nth].get_or_init(|| {
        let mut whole = Vec::new();
        // a test unpacks each
        let _ = GzDecoder::new(FILES[nth].2).read_to_end(&mut whole);
        whole
    })
}

fn answer(nth: usize, (_, kind, bytes, keep): File, headers: &HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepts = |field: &HeaderValue| field.to_str().is_ok_and(|field| field.contains("gzip"));
    let fields = [
        (header::CONTENT_TYPE, kind),
        (header::VARY, "accept-encoding"),
        (header::CACHE_CONTROL, keep),
    ];
    match accepted.into_iter().any(accepts) {
        true => (fields, [(header::CONTENT_ENCODING, "gzip")], bytes).into_response(),
        false => (fields, unpacked(nth)).into_response(),
    }
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
