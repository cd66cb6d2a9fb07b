//! The whole list of forbidden addresses through the doors of the gateway and beside it. Canaries stand at every address of
//! the Internet's machine and of the gateway: a connection that gets there by one of the list is a hole.

mod canary;
mod doors;
mod own;
mod streams;

use crate::Test;
use doors::{
    clients_of_proxies_reach_nothing_forbidden, forwards_reach_nothing_forbidden,
    the_browsers_script_is_no_way_around, udp_over_http_reaches_nothing_forbidden,
};
use own::own_public_addresses_are_closed;
use streams::{
    a_telephone_reaches_nothing_forbidden, diverted_tcp_reaches_nothing_forbidden,
    names_of_forbidden_addresses_lead_nowhere, own_traffic_reaches_nothing_forbidden,
};

pub(crate) use canary::routed;

pub(crate) const TESTS: &[Test] = &[
    ("diverted_tcp_reaches_nothing_forbidden", diverted_tcp_reaches_nothing_forbidden),
    ("own_traffic_reaches_nothing_forbidden", own_traffic_reaches_nothing_forbidden),
    ("names_of_forbidden_addresses_lead_nowhere", names_of_forbidden_addresses_lead_nowhere),
    ("a_telephone_reaches_nothing_forbidden", a_telephone_reaches_nothing_forbidden),
    ("forwards_reach_nothing_forbidden", forwards_reach_nothing_forbidden),
    ("clients_of_proxies_reach_nothing_forbidden", clients_of_proxies_reach_nothing_forbidden),
    ("udp_over_http_reaches_nothing_forbidden", udp_over_http_reaches_nothing_forbidden),
    ("the_browsers_script_is_no_way_around", the_browsers_script_is_no_way_around),
    ("own_public_addresses_are_closed", own_public_addresses_are_closed),
];
