//! Connections to a forwarded port: they go to its one destination, by rules and routes as all do. Whatever
//! fails resets the connection.

use super::gateway::{admit, fail};
use crate::observe::registry::Protocol;
use crate::outbound::connect::Purpose;
use crate::session::{OpenTunnel, Session};
use crate::settings::{PortForward, SendProxy};
use crate::wire::proxy_header::{write_binary, write_text};
use std::net::SocketAddr;

/// Connects to the destination and relays.
pub(crate) async fn serve(session: &Session, forward: &PortForward) -> Option<OpenTunnel> {
    let to = &forward.to;
    let mut entry = session.begin(Protocol::Forward, to, None, to.to_string());
    if let Err(failure) = admit(session).and_then(|()| session.begin_service()) {
        return fail(session, &mut entry, &failure);
    }
    match session.open(to, Purpose::Tunnel { via: b"" }).await {
        Ok(way) => {
            entry.status = Some(0);
            Some(session.tunnel_over(way, header(session, forward.send_proxy), entry))
        }
        Err(failure) => fail(session, &mut entry, &failure),
    }
}

/// The bytes before the client's own.
fn header(session: &Session, send: SendProxy) -> Vec<u8> {
    let local = || session.client.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
    match send {
        SendProxy::Off => Vec::new(),
        SendProxy::V1 => write_text(session.address, local()),
        SendProxy::V2 => write_binary(session.address, local()),
    }
}
