//! A connection to an origin server or the last proxy before it, reusable for more than one request.

use crate::destination::Destination;
use crate::error::LateFailure;
use crate::observe::leg_stats::LegStats;
use crate::observe::named_leg::NamedLeg;
use crate::policy::route::Route;
use crate::policy::upstream::Hop;
use crate::resources::{ManagedLeg, Owner, PoolKey};
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use crate::wire::http::fields;
use crate::wire::http::head::Field;
use ekiden_linux::host::clock;
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Span, Time};
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
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// For whom it is kept between requests: the client of the last one.
    pub(crate) keeper: Source,
    pub(crate) reused: bool,
    pub(crate) idle_since: Time,
    /// For how many seconds the server keeps it open from then on, where it says so.
    pub(crate) kept_for: Option<u32>,
    /// Reserved for one client and account, because an authentication applies to the connection and not to the request.
    pub(crate) own: bool,
}

/// A server that closes idle connections does not after so short a while.
const JUST_USED: Span = Span::from_secs(1);
/// Seconds by which this relay gives a connection up before the server does: a request may be on its way then.
const AHEAD: u32 = 1;

impl Origin {
    /// Its pool key after a request of this client and account.
    pub(crate) fn key(&self, owner: Owner) -> PoolKey {
        let own = self.own.then_some(owner);
        PoolKey::new(&self.route, Arc::clone(&self.through), self.destination.clone(), own)
    }

    pub(crate) const fn stream(&self) -> &End {
        &self.incoming.stream
    }

    /// The server's address; `None` where a proxy or a peer connected to it. The socket does not know it any more once it
    /// was reset.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.through.is_empty().then_some(self.peer)
    }

    /// For how much longer it may be kept, of `limit` since it became idle.
    pub(crate) fn left(&self, limit: Span) -> Span {
        let limit = self.kept_for.map_or(limit, |seconds| {
            limit.min(Span::from_secs(seconds.saturating_sub(AHEAD).into()))
        });
        (self.idle_since + limit).since(clock::now())
    }

    /// Whether a request may take it that must not be sent twice (RFC 9110 §9.2.2): the server might close it just
    /// then. A client that has authenticated its connection needs it all the same.
    pub(crate) fn takes_once(&self) -> bool {
        self.own || clock::now().since(self.idle_since) < JUST_USED
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
