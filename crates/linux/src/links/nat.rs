//! Masquerading: lets a namespace reach what the machine it is joined to reaches.
//!
//! A waiting [`Nft`] owns a table that masquerades packets from one address. [`crate::links::forwarding`] lets packets pass.

use crate::host::sysctl;
use crate::links::nft::{Nft, NftError};
use crate::namespaces::netns::Netns;
use std::net::{Ipv4Addr, Ipv6Addr};

const FORWARD_V6: &str = "net.ipv6.conf.all.forwarding";

/// Masquerading, until dropped.
#[derive(Debug)]
pub struct Nat {
    _nft: Nft,
    notes: Vec<String>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error("the far end reaches this machine only; to reach further, {0}")]
pub struct NatError(#[from] NftError);

impl Nat {
    /// Masquerades packets from these addresses in `outer`. IPv6 only where it is forwarded
    /// already: switching that on would make the machine ignore its router's advertisements.
    /// Errors: [`NatError`]; nothing has changed then.
    pub fn start(outer: &Netns, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<Self, NatError> {
        let v6_too = sysctl::read_in(outer, FORWARD_V6).is_some_and(|value| value != "0");
        let mut nft = Nft::start(Some(outer))?;
        nft.run(&rules(v4, v6_too.then_some(v6)))?;
        let mut this = Self { _nft: nft, notes: Vec::new() };
        if !v6_too {
            this.notes.push(
                "beyond this machine by IPv4 alone: it does not forward IPv6 \
                 (sysctl net.ipv6.conf.all.forwarding=1)"
                    .to_owned(),
            );
        }
        Ok(this)
    }

    /// The missing requirement.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The link's address names the table.
fn rules(v4: Ipv4Addr, v6: Option<Ipv6Addr>) -> String {
    let v6 = v6.map_or_else(String::new, |v6| format!("ip6 saddr {v6} masquerade; "));
    let name = format!("ekiden_link_{}", v4.to_bits());
    format!(
        "add table inet {name} {{ flags owner; chain out {{ type nat hook postrouting priority srcnat; \
         ip saddr {v4} masquerade; {v6}}}; }}"
    )
}
