//! The way out: connections along routes, upstream proxies, names, races of addresses and SYNs,
//! tunnels, UDP.

pub(crate) mod ask;
pub(crate) mod connect;
pub(crate) mod dial;
pub(crate) mod dns;
mod kept_addresses;
mod lookups;
pub(crate) mod name_places;
mod recent;
pub(crate) mod resolve;
pub(crate) mod syn_race;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod udp;
