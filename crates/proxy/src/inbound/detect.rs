//! The first bytes of a connection decide which protocol serves it.

use crate::inbound::http::forward;
use crate::inbound::{socks, tls, tunnel};
use crate::session::{OpenTunnel, Session, within};
use crate::transfer::buffered::{BufferedStream, FIRST_READ};
use std::sync::Arc;

/// Serves one client to the end.
pub(crate) async fn serve(session: Session) {
    if !session.admit().await {
        return;
    }
    // each stage has a box of its own that is freed at its end, so that an idle tunnel holds none of them
    if let Some(tunnel) = detect(&session).await {
        session.relay(tunnel).await;
    }
}

/// Reads the first bytes and serves the protocol they belong to; returns the tunnel that follows, if any.
async fn detect(session: &Session) -> Option<OpenTunnel> {
    if let Some(arrival) = &session.arrival {
        return Box::pin(tunnel::serve(session, arrival)).await;
    }
    let mut client = BufferedStream::new(Arc::clone(&session.client), Vec::new());
    let limit = session.config.settings.timeouts.first_byte;
    match session.unless_stopping(within(limit, client.fill(FIRST_READ))).await {
        Some(Ok(n)) if n > 0 => {}
        _ => return None,
    }
    match client.bytes().first() {
        Some(5) => Box::pin(socks::socks5(session, client)).await,
        Some(4) => Box::pin(socks::socks4(session, client)).await,
        Some(&tls::FIRST_BYTE) if session.config.certificate.is_some() && session.tls.is_none() => {
            Box::pin(tls::serve(session, client)).await;
            None
        }
        _ => forward::serve(session, client).await,
    }
}
