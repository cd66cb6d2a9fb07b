//! The authority's connection that checks who answers for a name (RFC 8737). It is no client: no
//! rule applies to it, and nothing is served but the challenge's certificate.

use super::{FIRST_BYTE, handshake};
use crate::observe::log_throttle::LogThrottle;
use crate::session::Session;
use crate::transfer::tls::TlsTransport;
use crate::transfer::tls_session::SESSION;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// How much of a connection's beginning is looked at: more than any ClientHello has.
const MOST: usize = 16 * 1024;
/// How much at first: most are smaller.
const FIRST: usize = 1024;
/// How soon a beginning that is not whole is looked at again; twice as late each time.
const AGAIN: Duration = Duration::from_millis(10);
/// But never later.
const LONGEST: Duration = Duration::from_secs(1);

/// Answers a connection that asks for a challenge. `false`: it does not, and nothing of it was read.
pub(crate) async fn answer(session: &Session) -> bool {
    let limit = session.config.settings.timeouts.request_head.into();
    let looking = session.unless_stopping(tokio::time::timeout(limit, challenged(session))).await;
    let Some(Ok(Some(config))) = looking else { return false };
    let Some(_held) = session.permit.hold(SESSION).await else { return true };
    let transport = TlsTransport::new(session.client.clone(), Vec::new());
    // anybody may come with a challenge's handshake
    let accepting = handshake::accept(config, transport, &session.permit);
    static ANSWERED: LogThrottle = LogThrottle::new();
    static FAILED: LogThrottle = LogThrottle::new();
    match tokio::time::timeout(limit, accepting).await {
        Ok(Ok(mut secure)) => {
            if ANSWERED.is_due() {
                tracing::info!(client = %session.address, "answered a challenge of the certificates' authority");
            }
            // the handshake was all (RFC 8737 §3)
            let _ = tokio::time::timeout(limit, secure.shutdown()).await;
        }
        Ok(Err(error)) if FAILED.is_due() => {
            tracing::warn!(client = %session.address, "a challenge was not answered: {error}");
        }
        Err(_) if FAILED.is_due() => {
            tracing::warn!(client = %session.address, "a challenge was not answered in time");
        }
        _ => {}
    }
    true
}

/// Looks at the connection's ClientHello and leaves it there; the challenge that it asks for, if any.
/// A connection for which there is no memory is no challenge.
async fn challenged(session: &Session) -> Option<Arc<ServerConfig>> {
    let mut first = [0];
    if session.client.peek(&mut first).await.ok()? == 0 || first != [FIRST_BYTE] {
        return None;
    }
    let mut look = Look::new();
    // what was looked at, and what is kept of it while it is read
    let mut held = session.permit.hold(2 * look.size).await?;
    let mut bytes = vec![0; look.size];
    loop {
        let seen = session.client.peek(&mut bytes).await.ok()?;
        match look.at(seen)? {
            Next::Enlarge(size) => {
                if !held.resize(2 * size).await {
                    return None;
                }
                bytes.resize(size, 0);
            }
            Next::Wait(span) => tokio::time::sleep(span).await,
            Next::Read => {
                let mut acceptor = Acceptor::default();
                acceptor.read_tls(&mut &bytes[..seen]).ok()?;
                if let Some(hello) = acceptor.accept().ok()? {
                    return session.config.shared.acme.answer(&hello.client_hello());
                }
            }
        }
    }
}

/// How a beginning is looked at that comes in pieces: each piece is read once, and the pauses grow.
struct Look {
    size: usize,
    seen: usize,
    pause: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// There may be more than the buffer takes.
    Enlarge(usize),
    /// There is more than before.
    Read,
    /// The rest is under way.
    Wait(Duration),
}

impl Look {
    const fn new() -> Self {
        Self { size: FIRST, seen: 0, pause: AGAIN }
    }

    /// With so many bytes there; `None`: it is no ClientHello, or has ended.
    fn at(&mut self, seen: usize) -> Option<Next> {
        if seen == 0 || seen >= MOST {
            return None;
        }
        if seen == self.size {
            self.size = (2 * self.size).min(MOST);
            return Some(Next::Enlarge(self.size));
        }
        if seen > self.seen {
            self.seen = seen;
            return Some(Next::Read);
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST);
        Some(Next::Wait(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_beginning_costs_little() {
        let mut look = Look::new();
        assert_eq!(look.at(1), Some(Next::Read));
        let pauses: Vec<_> = (0..9).filter_map(|_| look.at(1)).collect();
        assert_eq!(pauses[0], Next::Wait(AGAIN));
        assert_eq!(pauses[8], Next::Wait(LONGEST));
        // one more byte is read once, and does not hurry
        assert_eq!((look.at(2), look.at(2)), (Some(Next::Read), Some(Next::Wait(LONGEST))));
        assert_eq!(look.at(FIRST), Some(Next::Enlarge(2 * FIRST)));
        assert_eq!(look.at(FIRST + 1), Some(Next::Read));
        while look.size < MOST {
            let size = look.size;
            assert!(matches!(look.at(size), Some(Next::Enlarge(more)) if more > size));
        }
        assert_eq!((look.at(MOST), look.at(0)), (None, None));
    }
}
