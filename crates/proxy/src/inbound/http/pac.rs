//! The script for browsers, out of the proxy's own port. It answers a request in origin form, and
//! needs no log-in: browsers have none when they fetch it.

use crate::destination::Destination;
use crate::observe::registry::Protocol;
use crate::session::Session;
use crate::wire::http::fields;
use crate::wire::http::head::Request;
use crate::wire::http::pac::{TYPE, is_asked_for, script};

/// The answer, if the request asks for the script.
pub(super) fn answer(session: &Session, request: &Request) -> Option<Vec<u8>> {
    let settings = &session.config.settings.pac;
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    if !settings.serve || !reads || !is_asked_for(&request.target) {
        return None;
    }
    let tls = session.tls.is_some();
    let proxy = reached_at(session, request, tls)?;
    let body = script(&proxy, tls, settings);
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
    entry.target = Some(format!("http://{proxy}{}", request.target.split('?').next()?));
    entry.status = Some(200);
    session.log(&entry, "answered by the relay");
    Some(answer.into_bytes())
}

/// `host:port` by which the client reached this relay: as it says, else by address.
pub(super) fn reached_at(session: &Session, request: &Request, tls: bool) -> Option<String> {
    let port = if tls { 443 } else { 80 };
    let mut hosts = fields::values(&request.fields, "host");
    let said = hosts.next().and_then(|host| std::str::from_utf8(host).ok());
    let said = said.and_then(|host| Destination::parse(host, Some(port)).ok());
    // within TLS the connection is one of loopback
    let found = || session.client.local_addr().ok().filter(|_| !tls).map(Destination::from);
    said.or_else(found).map(|to| to.to_string())
}
