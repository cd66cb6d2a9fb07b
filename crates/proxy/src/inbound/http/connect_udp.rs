//! Requests for UDP through this relay (RFC 9298): `Upgrade: connect-udp` of HTTP/1.1, which an extended CONNECT of
//! HTTP/2 is translated to. After the answer, `inbound::udp::capsules` relays.

use super::own::{OwnRequest, https};
use super::plan::checks;
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::inbound::udp::capsules::CapsuleFlow;
use crate::session::{LogEntry, Session};
use crate::transfer::buffered::BufferedStream;
use crate::wire::http::fields;
use crate::wire::http::h2::CONNECT_UDP;
use crate::wire::http::head::{Request, Version};
use crate::wire::http::{BadMessage, reply, udp_path};

/// Whether this relay is asked for UDP, well-formed or not. Where UDP is off, nothing is meant for it.
pub(super) fn is_meant(session: &Session, request: &Request) -> bool {
    let path = match https(&request.target) {
        Some((_, path)) if session.tls.is_some() => path,
        _ => request.target.as_str(),
    };
    path.starts_with(udp_path::PREFIX) && session.config.why_no_datagrams().is_none()
}

/// Answers, and relays until the flow ends. Fails before an answer.
pub(super) async fn serve(
    session: &Session,
    incoming: &mut BufferedStream,
    request: &Request,
    entry: &mut LogEntry,
) -> Result<(), Failure> {
    entry.method = Some(request.method.clone());
    let to = target(session, request)?;
    session.set_out(entry, None, &to, to.to_string());
    let flow = CapsuleFlow::open(session, to, entry).await?;
    if !session.answer_opened(reply::udp_connected(), (flow.entry, 101)).await {
        return Ok(());
    }
    let incoming = BufferedStream::new(session.client.clone(), incoming.take());
    flow.serve(incoming).await;
    Ok(())
}

/// The target of a well-formed request (RFC 9298 §3.2).
fn target(session: &Session, request: &Request) -> Result<Destination, Failure> {
    checks(session, request)?;
    if fields::values(&request.fields, "host").count() != 1 {
        return Err(BadMessage::bad("a request for UDP has one Host").into());
    }
    let Some(own) = OwnRequest::at(session, request) else {
        if request.target.starts_with('/') {
            return Err(BadMessage::bad("the Host of a request for UDP is not a host").into());
        }
        let text = "this connection leads to a relay of another name; ask it by the name that TLS asked for";
        return Err(Failure::new(FailureKind::Malformed(421), text));
    };
    if request.method != "GET" {
        return Err(BadMessage::bad("a request for UDP has the method GET").into());
    }
    let mut upgrades = fields::elements(&request.fields, "upgrade");
    let asks = request.version == Version::Http11
        && fields::has(&request.fields, "connection", "upgrade")
        && upgrades.next().is_some_and(|one| one.eq_ignore_ascii_case(CONNECT_UDP.as_bytes()))
        && upgrades.next().is_none();
    if !asks {
        let text = "this path is for UDP (RFC 9298); ask with `Connection: Upgrade` and `Upgrade: connect-udp`";
        return Err(BadMessage::bad(text).into());
    }
    // RFC 9297 §3.2
    let of_bodies = ["content-length", "content-type", "transfer-encoding"];
    if of_bodies.iter().any(|name| fields::values(&request.fields, name).next().is_some()) {
        let text = "a request for UDP has no Content-Length, Content-Type or Transfer-Encoding";
        return Err(BadMessage::bad(text).into());
    }
    Ok(udp_path::target(own.target)?)
}
