//! The script for browsers, out of the proxy's own port. It needs no log-in: browsers have none when they
//! fetch it.

use super::own::OwnRequest;
use crate::observe::registry::Protocol;
use crate::session::Session;
use crate::wire::http::head::Request;
use crate::wire::http::pac::{TYPE, is_asked_for, script};

/// The answer, if the request asks for the script.
pub(super) fn answer(
    session: &Session,
    request: &Request,
    own: &OwnRequest<'_>,
) -> Option<Vec<u8>> {
    let settings = &session.config.settings.pac;
    let OwnRequest { target, proxy, tls } = own;
    if !settings.serve || !is_asked_for(target) {
        return None;
    }
    let body = script(proxy, *tls, settings);
    let name = &session.config.settings.name;
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nVia: 1.1 {name}\r\nContent-Type: {TYPE}\r\nContent-Length: {}\r\n\
         Cache-Control: max-age=300\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if request.method == "GET" {
        answer.push_str(&body);
    }
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = Some(request.method.clone());
    entry.target = Some(format!("http://{proxy}{}", target.split('?').next()?));
    entry.status = Some(200);
    session.log(&entry, "answered by the relay");
    Some(answer.into_bytes())
}
