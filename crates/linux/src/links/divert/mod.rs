//! Diverting: connections that this machine forwards or opens arrive at a socket of its own instead.
//!
//! ```text
//! device ─▶ chain "arriving": a SYN ─ TPROXY ─▶ a transparent listener; its address stays the destination's
//!           chain "known": packets of transparent sockets get the mark
//!           rule: fwmark MARK lookup MARK ─▶ route: local default dev lo
//! device ─▶ chain "arriving": UDP to port 443 ─ TPROXY ─▶ a transparent socket, or "port unreachable" where the
//!           client and the destination are in a set
//! own    ─▶ chain "leaving": REDIRECT ─▶ the same listener; SO_ORIGINAL_DST has the destination
//! ```
//! The table belongs to this program ([`crate::links::nft`]): when it ends, the kernel removes the table, and
//! packets pass by. A rule and a route that a killed program leaves do nothing, because no packet has the
//! mark; the next start takes them over.

mod blocked;
mod look;
mod rules;
mod tunnel;

pub use look::{DivertFacts, OtherRules};
pub use rules::{DivertPlan, Prefix, Strangers};
pub use tunnel::TunnelRules;

use crate::links::netlink::{Failure, MarkRule, Netlink};
use crate::links::nft::{Nft, NftError};
use blocked::{BlockedPairs, Pair};
use ekiden_model::units::Time;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The table of nftables, in the family `inet`.
pub const TABLE: &str = "ekiden_gateway";

/// The place of the rules for the mark: before the main table, and before those that VPNs add.
pub const PRIORITY: u32 = 10_650;

/// What is diverted, until dropped.
#[derive(Debug)]
pub struct Divert {
    nft: Nft,
    netlink: Netlink,
    plan: Option<DivertPlan>,
    blocked: BlockedPairs,
}

/// Why nothing is diverted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum DivertError {
    #[error("{error}{}", hint(error))]
    Nft {
        #[from]
        error: NftError,
    },
    #[error("{0}")]
    Routing(#[from] Failure),
    #[error("{0}")]
    System(#[from] io::Error),
    #[error(
        "others use the mark {mark:#x} or the routing table {mark}: set another `mark` in [gateway]"
    )]
    Taken { mark: u32 },
}

/// What to try, by nft's words.
fn hint(error: &NftError) -> &'static str {
    let NftError::Refused(why) = error else { return "" };
    match () {
        () if why.contains("not permitted") => {
            "; it takes CAP_NET_ADMIN, and no other Ekiden may divert in this network namespace"
        }
        () if why.contains("No such file or directory") => {
            "; the kernel lacks a module (nft_tproxy, nft_socket, nft_fib_inet, nft_reject_inet, nft_redir)"
        }
        () if why.contains("syntax error") => "; it takes nftables 1.0 or newer",
        () => "",
    }
}

impl Divert {
    /// Begins without any rule, in the calling thread's network namespace. Errors: nft is missing, or no
    /// process or descriptor is left.
    pub fn start() -> Result<Self, DivertError> {
        Ok(Self {
            nft: Nft::start(None)?,
            netlink: Netlink::here()?,
            plan: None,
            blocked: BlockedPairs::default(),
        })
    }

    /// Diverts by `plan` in place of the plan before, at one moment. Errors: [`DivertError`]; the plan
    /// before stays in effect then.
    pub fn set(&mut self, plan: &DivertPlan) -> Result<(), DivertError> {
        let before = self.plan.as_ref().map(|plan| plan.mark);
        if before != Some(plan.mark) {
            self.check(plan)?;
        }
        let table = format!("table inet {TABLE}");
        let claim = format!("add {table} {{ flags owner; }}");
        if before.is_none() {
            // another program of this kind may have it, and its rules and routes look as these do
            self.nft.run(&claim)?;
        }
        let routed = plan.families().try_for_each(|ipv6| {
            self.netlink.add_local_route(ipv6, plan.mark)?;
            self.netlink.add_rule(&rule(ipv6, plan.mark))
        });
        let set = routed.map_err(DivertError::from).and_then(|()| {
            // an owner's table cannot be changed piece by piece without knowing all of it
            let again = format!("{claim}\ndelete {table}\n{}", plan.nft());
            Ok(self.nft.run(&again)?)
        });
        match (set, before) {
            (Ok(()), before) => {
                self.plan = Some(plan.clone());
                // the new table's sets are empty
                self.blocked = BlockedPairs::default();
                if let Some(before) = before.filter(|before| *before != plan.mark) {
                    self.unroute(before);
                }
                Ok(())
            }
            (Err(error), before) => {
                if before != Some(plan.mark) {
                    self.unroute(plan.mark);
                }
                if before.is_none() {
                    // an empty one would keep others from theirs
                    let _ = self.nft.run(&format!("delete {table}"));
                }
                Err(error)
            }
        }
    }

    /// Answers QUIC of these clients to these destinations with "port unreachable" for half a minute. What is beyond 256
    /// pairs of one client, or of 3,072 of an IPv6 /64, gets no answer. Errors: nothing was set; the plan diverts no QUIC.
    pub fn block_quic(
        &mut self,
        now: Time,
        pairs: &[(SocketAddr, IpAddr)],
    ) -> Result<(), DivertError> {
        let alike = |pair: &&Pair| pair.0.is_ipv6() == pair.1.is_ipv6();
        let pairs: Vec<Pair> = pairs.iter().filter(alike).copied().collect();
        let taken = self.blocked.take(now, &pairs);
        let text = rules::block(&taken);
        if text.is_empty() {
            return Ok(());
        }
        self.nft.run(&text).inspect_err(|_| self.blocked.undo(taken.len()))?;
        Ok(())
    }

    /// The plan in effect.
    pub const fn plan(&self) -> Option<&DivertPlan> {
        self.plan.as_ref()
    }

    /// Whether the table is still held; otherwise the kernel has removed it.
    pub fn is_held(&mut self) -> bool {
        self.nft.is_running()
    }

    /// Adds the rules and routes of the mark again that others removed, and returns whether any was gone. The table cannot
    /// be changed by others. Errors: the kernel's.
    pub fn restore_routing(&self) -> Result<bool, DivertError> {
        let Some(plan) = &self.plan else { return Ok(false) };
        let (mark, mut was_gone) = (plan.mark, false);
        for ipv6 in plan.families() {
            if !self.netlink.has_local_route(ipv6, mark)? {
                was_gone = true;
                self.netlink.add_local_route(ipv6, mark)?;
            }
            if !self.netlink.tables_of_mark(ipv6, mark)?.contains(&mark) {
                was_gone = true;
                self.netlink.add_rule(&rule(ipv6, mark))?;
            }
        }
        Ok(was_gone)
    }

    /// Others must use neither the mark nor the table of its number.
    fn check(&self, plan: &DivertPlan) -> Result<(), DivertError> {
        let mark = plan.mark;
        for ipv6 in plan.families() {
            let tables = self.netlink.tables_of_mark(ipv6, mark)?;
            if tables.iter().any(|table| *table != mark)
                || self.netlink.other_routes(ipv6, mark)? > 0
            {
                return Err(DivertError::Taken { mark });
            }
        }
        Ok(())
    }

    fn unroute(&self, mark: u32) {
        for ipv6 in [false, true] {
            // what remains does nothing: no packet has the mark
            let _ = self.netlink.remove_rule(&rule(ipv6, mark));
            let _ = self.netlink.remove_local_route(ipv6, mark);
        }
    }
}

impl Drop for Divert {
    fn drop(&mut self) {
        if let Some(plan) = self.plan.take() {
            // packets pass by before their route goes
            let _ = self.nft.run_last(&format!("delete table inet {TABLE}"));
            self.unroute(plan.mark);
        }
    }
}

const fn rule(ipv6: bool, mark: u32) -> MarkRule {
    MarkRule { ipv6, mark, table: mark, priority: PRIORITY }
}
