//! Policy routing by packets' marks: rules, and the tables they lead to.

use super::links::family;
use super::{Failure, Netlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Packets with this mark are routed by this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRule {
    /// Whether it is for IPv6; otherwise for IPv4.
    pub ipv6: bool,
    /// All 32 bits of the mark.
    pub mark: u32,
    /// The table, as `ip rule … lookup`.
    pub table: u32,
    /// Its place: lower ones come first.
    pub priority: u32,
}

impl MarkRule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(unspecified(self.ipv6));
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::FwMark(self.mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(self.table),
        ];
        message
    }

    fn what(&self) -> String {
        let Self { mark, table, priority, .. } = self;
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        format!("the {family} rule {priority}: from all fwmark {mark:#x} lookup {table}")
    }
}

impl Netlink {
    /// Adds a rule; one that is there already is taken over. Errors: the kernel's.
    pub fn add_rule(&self, rule: &MarkRule) -> Result<(), Failure> {
        let message = RouteNetlinkMessage::NewRule(rule.message());
        match self.change(&rule.what(), message, NLM_F_CREATE | NLM_F_EXCL) {
            Err(failure) if failure.errno() == libc::EEXIST => Ok(()),
            done => done,
        }
    }

    /// Removes a rule; one that is gone is no error. Errors: the kernel's.
    pub fn remove_rule(&self, rule: &MarkRule) -> Result<(), Failure> {
        let message = RouteNetlinkMessage::DelRule(rule.message());
        gone_is_fine(self.change(&rule.what(), message, 0))
    }

    /// The tables that rules of this family choose by exactly this mark. Errors: the kernel's.
    pub fn tables_of_mark(&self, ipv6: bool, mark: u32) -> Result<Vec<u32>, Failure> {
        let mut message = RuleMessage::default();
        message.header.family = family(unspecified(ipv6));
        let dump = RouteNetlinkMessage::GetRule(message);
        let answers = self.ask("a look at the rules", dump, NLM_F_DUMP)?;
        let rules = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRule(rule) => Some(rule),
            _ => None,
        });
        let chosen = rules.filter(|rule| rule.attributes.contains(&RuleAttribute::FwMark(mark)));
        Ok(chosen.filter_map(table_of_rule).collect())
    }

    /// Makes everything that is routed by a table arrive at this machine. Errors: the kernel's.
    pub fn add_local_route(&self, ipv6: bool, table: u32) -> Result<(), Failure> {
        let message = RouteNetlinkMessage::NewRoute(self.local_route(ipv6, table)?);
        let what = format!("the local default route of table {table}");
        self.change(&what, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Undoes it; a route that is gone is no error. Errors: the kernel's.
    pub fn remove_local_route(&self, ipv6: bool, table: u32) -> Result<(), Failure> {
        let message = RouteNetlinkMessage::DelRoute(self.local_route(ipv6, table)?);
        let what = format!("removing the local default route of table {table}");
        gone_is_fine(self.change(&what, message, 0))
    }

    /// How many routes a table of this family has beside the local default route. Errors: the kernel's.
    pub fn other_routes(&self, ipv6: bool, table: u32) -> Result<usize, Failure> {
        Ok(self.local_and_others(ipv6, table)?.1)
    }

    /// Whether a table of this family has the local default route. Errors: the kernel's.
    pub fn has_local_route(&self, ipv6: bool, table: u32) -> Result<bool, Failure> {
        Ok(self.local_and_others(ipv6, table)?.0 > 0)
    }

    /// How many local default routes a table has, and how many others.
    fn local_and_others(&self, ipv6: bool, table: u32) -> Result<(usize, usize), Failure> {
        let routes = self.routes_of(ipv6, table)?;
        let of_table = routes.iter().filter(|route| table_of_route(route) == table);
        let ours = |route: &&RouteMessage| {
            route.header.kind == RouteType::Local && route.header.destination_prefix_length == 0
        };
        let (local, others): (Vec<_>, Vec<_>) = of_table.partition(ours);
        Ok((local.len(), others.len()))
    }

    /// The routes that the kernel sends when it is asked for those of a table: before Linux 4.20 all of the family.
    fn routes_of(&self, ipv6: bool, table: u32) -> Result<Vec<RouteMessage>, Failure> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(unspecified(ipv6));
        message.attributes = vec![RouteAttribute::Table(table)];
        let dump = RouteNetlinkMessage::GetRoute(message);
        // only so does it filter; the heads of other requests are not meant as filters
        let strict = self.socket.set_netlink_get_strict_chk(true);
        let answers = self.ask("a look at the routes", dump, NLM_F_DUMP);
        if strict.is_ok() {
            let _ = self.socket.set_netlink_get_strict_chk(false);
        }
        let answers = match answers {
            // there is no such table
            Err(failure) if failure.errno() == libc::ENOENT => return Ok(Vec::new()),
            answers => answers?,
        };
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        Ok(routes.collect())
    }

    fn local_route(&self, ipv6: bool, table: u32) -> Result<RouteMessage, Failure> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(unspecified(ipv6));
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Host;
        message.header.kind = RouteType::Local;
        message.attributes =
            vec![RouteAttribute::Table(table), RouteAttribute::Oif(self.index("lo")?)];
        Ok(message)
    }
}

const fn unspecified(ipv6: bool) -> IpAddr {
    match ipv6 {
        true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

fn gone_is_fine(done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(failure) if matches!(failure.errno(), libc::ENOENT | libc::ESRCH) => Ok(()),
        done => done,
    }
}

fn table_of_rule(rule: &RuleMessage) -> Option<u32> {
    rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    })
}

fn table_of_route(route: &RouteMessage) -> u32 {
    let long = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    long.unwrap_or(route.header.table.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_sends_the_routes_of_one_table_alone() {
        let here = Netlink::here().unwrap();
        let routes = |table| here.routes_of(false, table).unwrap();
        // the table "local" has loopback's
        let local = routes(255);
        assert!(!local.is_empty());
        assert!(local.iter().all(|route| table_of_route(route) == 255), "{local:?}");
        let main = routes(RouteHeader::RT_TABLE_MAIN.into());
        assert!(main.iter().all(|route| table_of_route(route) == 254), "{main:?}");
        assert!(routes(0x7ead_beef).is_empty(), "nobody has this one");
    }
}
