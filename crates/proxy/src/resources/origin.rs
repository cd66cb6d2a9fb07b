//! A connection to an origin server or the last proxy before it, reusable for more than one request.

use crate::destination::Destination;
use crate::error::LateFailure;
use crate::observe::leg_stats::LegStats;
use crate::observe::named_leg::NamedLeg;
use crate::policy::route::Route;
use crate::policy::upstream::Hop;
use crate::resources::{ManagedLeg, PoolKey};
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use crate::wire::http::fields;
use crate::wire::http::head::Field;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// A connection to an origin server or the last proxy before it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) incoming: BufferedStream,
    pub(crate) stats: LegStats,
    pub(crate) managed: ManagedLeg,
    pub(crate) destination: Option<Destination>,
    pub(crate) asks_proxy: Option<Arc<Hop>>,
    /// The peer's later report, where the connection goes through a tunnel.
    pub(crate) answer: Option<Arc<LateFailure>>,
    pub(crate) route: Arc<Route>,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) through: Arc<[String]>,
    pub(crate) reused: bool,
    /// Reserved for one client, because an authentication applies to the connection and not to the request.
    pub(crate) own: bool,
}

impl Origin {
    /// Its pool key after a request of this client.
    pub(crate) fn key(&self, client: u64) -> PoolKey {
        let own = self.own.then_some(client);
        PoolKey::new(&self.route, Arc::clone(&self.through), self.destination.clone(), own)
    }

    pub(crate) const fn stream(&self) -> &End {
        &self.incoming.stream
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        let direct = self.through.is_empty();
        direct.then(|| self.incoming.stream.peer_addr().ok()).flatten().map(|peer| peer.ip())
    }

    /// Whether it is open and silent. Unrequested bytes would be taken for the next response.
    pub(crate) fn is_silent(&self) -> bool {
        let mut byte = [0];
        self.incoming.bytes().is_empty()
            && matches!(self.incoming.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Whether a field names a scheme that authenticates connections, not requests (RFC 4559 §6; NTLM).
pub(crate) fn authenticates_connection(fields: &[Field], name: &str) -> bool {
    fields::values(fields, name).any(|value| {
        let scheme = value.split(|byte| matches!(byte, b' ' | b',')).next().unwrap_or_default();
        [&b"ntlm"[..], b"negotiate"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    })
}
