//! Why a client may not come in, or not go where it asks.

use crate::error::{Failure, FailureKind};
use crate::policy::special_addresses::Special;
use std::net::IpAddr;

/// Why something was refused; the message goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Denied {
    #[error("no rule admits clients from {0}")]
    Client(IpAddr),
    #[error("a rule refuses {0}")]
    Rule(String),
    #[error("your account may not go to {0}")]
    Account(String),
    #[error("{0} is for relays alone")]
    Relays(String),
    #[error(
        "{address} is {kind}, which is not reached through this relay; its operator can open it with --allow-destination or allow_destinations"
    )]
    Special { address: IpAddr, kind: Special },
    #[error(
        "{address} is {kind}, which is closed to clients that come by a tunnel; the operator of the relay at its end can open it with --allow-destination or allow_destinations"
    )]
    SpecialForPeers { address: IpAddr, kind: Special },
    #[error(
        "the kernel does not say whether {0} is an address of the relay's own machine; try again later"
    )]
    Unknown(IpAddr),
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        let kind = match denied {
            Denied::Client(_) => FailureKind::Denied,
            // as where no descriptor is left, which may be why
            Denied::Unknown(_) => FailureKind::Exhausted,
            _ => FailureKind::Prohibited,
        };
        Self::new(kind, denied.to_string())
    }
}
