//! The speed test of the page for users: bytes between the device and the relay, and between the relay and the far end of
//! its tunnel. They count against the account, and its limits hold. The page's script asks for one part after the other.
//!
//! **Requests of other sites** cannot spend an account's volume: each part needs a field that a page of another site may
//! not send (CORS), and a *Host* that no stranger can have.

mod bytes;

use super::{is_strange, words};
use crate::error::{Failure, FailureKind};
use crate::inbound::http::own::{OwnRequest, SPEED};
use crate::observe::registry::Protocol;
use crate::policy::accounts::read_basic;
use crate::session::Session;
use crate::transfer::buffered::BufferedStream;
use crate::wire::http::fields;
use crate::wire::http::head::Request;
use crate::wire::http::reply::reason;
use ekiden_linux::host::clock;
use ekiden_model::resources::overload::Source;
use serde_json::json;
use std::net::IpAddr;

/// The script that runs it.
pub(super) const SCRIPT: &str = include_str!("speed.js");
/// The field that every part needs.
const FIELD: &str = "x-ekiden-speed";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inbound::http) enum Part {
    /// From the relay to the device.
    Down,
    /// From the device to the relay.
    Up,
    /// Between the relay and the far end of its tunnel, both ways.
    Tunnel,
}

impl Part {
    /// The part that a request asks for, if any.
    pub(in crate::inbound::http) fn of(
        session: &Session,
        request: &Request,
        own: &OwnRequest<'_>,
    ) -> Option<Self> {
        let asked = own.target.strip_prefix(SPEED).filter(|_| session.config.settings.pac.page)?;
        match (asked, request.method.as_str()) {
            ("down", "GET") => Some(Self::Down),
            ("up", "POST") => Some(Self::Up),
            ("tunnel", "GET") => Some(Self::Tunnel),
            _ => None,
        }
    }
}

/// Runs one part and answers.
pub(in crate::inbound::http) async fn serve(
    session: &Session,
    (request, own): (&Request, &OwnRequest<'_>),
    incoming: &mut BufferedStream,
    part: Part,
) {
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = Some(request.method.clone());
    entry.target = Some(format!("http://{}{}", own.proxy, own.target));
    let ran = run(session, (request, own), incoming, part).await;
    let result = match &ran {
        Ok(()) => {
            entry.status = Some(200);
            "answered by the relay".to_owned()
        }
        Err(failure) => {
            entry.status = Some(failure.status());
            let text = refusal(session, request, failure);
            session.send_and_close(text.as_bytes()).await;
            failure.text.clone()
        }
    };
    session.log(&mut entry, &result);
}

async fn run(
    session: &Session,
    (request, own): (&Request, &OwnRequest<'_>),
    incoming: &mut BufferedStream,
    part: Part,
) -> Result<(), Failure> {
    if fields::values(&request.fields, FIELD).next().is_none() || is_strange(own) {
        return Err(Failure::new(FailureKind::Denied, "a speed test is begun by the page at /"));
    }
    let who = account(session, request).await?;
    let tests = &session.config.shared.speed_tests;
    let running = tests.begin(&who, clock::now()).map_err(|wait| {
        let many = Failure::new(
            FailureKind::Malformed(429),
            "another speed test is running, or has just run",
        );
        many.retry_after(wait)
    })?;
    let json = match part {
        Part::Down => {
            bytes::down(session).await?;
            None
        }
        Part::Up => {
            Some(json!({ "bits_per_second": bytes::up(session, request, incoming).await? }))
        }
        Part::Tunnel => {
            let peer = tunnel(session)
                .ok_or_else(|| Failure::new(FailureKind::NoTunnel, "no tunnel is up"))?;
            let [down, up] = bytes::through(session, &peer).await?;
            Some(json!({ "peer": peer, "down": down, "up": up }))
        }
    };
    // before the answer's end, after which the page begins the next part at once
    drop(running);
    match json {
        Some(json) => session.send_and_close(answer(session, &json.to_string()).as_bytes()).await,
        None => session.close_gently().await,
    }
    Ok(())
}

/// Who pays for the bytes: an account, or the client's network where it has none.
async fn account(session: &Session, request: &Request) -> Result<String, Failure> {
    if session.config.directory.is_some() {
        let brought = fields::values(&request.fields, "authorization").next().and_then(read_basic);
        let known = match brought {
            Some((user, password)) => Some(session.log_in(&user, &password).await?),
            None => session.identify()?,
        };
        let none = || Failure::new(FailureKind::Denied, "this device is not known");
        session.set_account(Some(known.ok_or_else(none)?));
        session.join_account()?;
    }
    let share = session.share();
    let name = share.as_ref().map(|share| share.name().to_owned());
    Ok(name.unwrap_or_else(|| without_account(session.address.ip())))
}

/// The name of a client that has no account: of IPv6 its /64, of which it may use any address.
fn without_account(client: IpAddr) -> String {
    format!("at {}", Source::from(client))
}

/// The peer whose tunnel the first route uses that has one, while it is up.
pub(super) fn tunnel(session: &Session) -> Option<String> {
    let shared = &session.config.shared;
    session.config.tunnel_peers().find(|peer| shared.tunnel_is_up(peer)).map(str::to_owned)
}

fn answer(session: &Session, json: &str) -> String {
    let relay = &session.config.settings.name;
    format!(
        "HTTP/1.1 200 OK\r\nVia: 1.1 {relay}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{json}",
        json.len()
    )
}

/// A refusal that the page shows, in its language.
fn refusal(session: &Session, request: &Request, failure: &Failure) -> String {
    let languages = fields::values(&request.fields, "accept-language");
    let words = words::of(languages.filter_map(|value| std::str::from_utf8(value).ok()));
    let (status, relay) = (failure.status(), &session.config.settings.name);
    let text = match status {
        429 => words.speed_busy,
        _ => &failure.text,
    };
    let wait = failure.retry_after.map(|span| span.as_millis().div_ceil(1_000).max(1));
    let wait = wait.map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
    format!(
        "HTTP/1.1 {status} {}\r\nVia: 1.1 {relay}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{wait}Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        reason(status),
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let named = |text: &str| without_account(text.parse().unwrap());
        assert_eq!(named("2001:db8::1"), "at 2001:db8::/64");
        assert_eq!(named("2001:db8::1"), named("2001:db8::ffff:2"));
        assert_ne!(named("2001:db8::1"), named("2001:db8:0:1::1"));
        assert_ne!(named("192.0.2.1"), named("192.0.2.2"));
        assert_eq!(named("::ffff:192.0.2.1"), "at 192.0.2.1");
    }
}
