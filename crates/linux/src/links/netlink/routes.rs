//! Routes and their TCP metrics.

use super::links::family;
use super::{Failure, Netlink};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use std::net::IpAddr;

/// `RTAX_RTO_MIN` of include/uapi/linux/rtnetlink.h, as a bit of `RTAX_LOCK`.
const LOCK_RTO_MIN: u32 = 1 << 13;

/// A way to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to: an address and how many bits of it count; zero bits are all of the family.
    pub destination: (IpAddr, u8),
    /// The gateway; none when the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// Over which device.
    pub dev: String,
    /// Its TCP metrics.
    pub metrics: RouteMetrics,
}

/// TCP metrics of a route; `None` leaves the system's value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMetrics {
    /// The congestion control, as `cubic`; an ordinary user may ask for any the kernel has loaded.
    pub congestion: Option<String>,
    /// The first congestion window, segments.
    pub initcwnd: Option<u32>,
    /// Whether every segment is acknowledged immediately.
    pub quickack: Option<bool>,
    /// The shortest retransmission timeout, milliseconds.
    pub rto_min: Option<u32>,
}

impl Netlink {
    /// Sets a route, in place of one to the same destination. Errors: `ENODEV`, `ENETUNREACH` when
    /// `via` is not on the link, `EINVAL` for a congestion control that the kernel does not have.
    pub fn route(&self, route: &Route) -> Result<(), Failure> {
        let (to, bits) = route.destination;
        let mut message = ordinary(to, bits);
        if route.via.is_none() && to.is_ipv4() {
            message.header.scope = RouteScope::Link;
        }
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Oif(self.index(&route.dev)?),
        ];
        message.attributes.extend(route.via.map(|via| RouteAttribute::Gateway(via.into())));
        message.attributes.push(RouteAttribute::Metrics(route.metrics.write()));
        let what = format!("the route to {to}/{bits} over {}", route.dev);
        self.change(&what, RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// The kernel's metrics of the main table's route to exactly this destination, if there is one.
    pub fn route_metrics(&self, to: IpAddr, bits: u8) -> Result<Option<RouteMetrics>, Failure> {
        let what = format!("a look at the route to {to}/{bits}");
        let message = RouteNetlinkMessage::GetRoute(ordinary(to, 0));
        let answers = self.ask(&what, message, NLM_F_DUMP)?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) if is_to(&route, to, bits) => {
                Some(RouteMetrics::read(&route.attributes))
            }
            _ => None,
        }))
    }
}

/// Whether a route of the main table leads to exactly this destination.
fn is_to(route: &RouteMessage, to: IpAddr, bits: u8) -> bool {
    let other = |attribute: &RouteAttribute| {
        // the kernel leaves the destination out when no bit of it counts
        matches!(attribute, RouteAttribute::Destination(other) if *other != to.into())
    };
    route.header.address_family == family(to)
        && route.header.destination_prefix_length == bits
        && route.header.table == RouteHeader::RT_TABLE_MAIN
        && !route.attributes.iter().any(other)
}

impl RouteMetrics {
    fn write(&self) -> Vec<RouteMetric> {
        let metrics = [
            self.initcwnd.map(RouteMetric::InitCwnd),
            self.rto_min.map(RouteMetric::RtoMin),
            self.quickack.map(|on| RouteMetric::QuickAck(u32::from(on))),
            // unlocked, TCP ignores it
            self.rto_min.map(|_| RouteMetric::Lock(LOCK_RTO_MIN)),
            self.congestion.clone().map(RouteMetric::CcAlgo),
        ];
        metrics.into_iter().flatten().collect()
    }

    fn read(attributes: &[RouteAttribute]) -> Self {
        let mut read = Self::default();
        let metrics = attributes.iter().filter_map(|attribute| match attribute {
            RouteAttribute::Metrics(metrics) => Some(metrics),
            _ => None,
        });
        for metric in metrics.flatten() {
            match metric {
                RouteMetric::InitCwnd(value) => read.initcwnd = Some(*value),
                RouteMetric::RtoMin(value) => read.rto_min = Some(*value),
                RouteMetric::QuickAck(value) => read.quickack = Some(*value != 0),
                RouteMetric::CcAlgo(name) => read.congestion = Some(name.clone()),
                _ => {}
            }
        }
        read
    }
}

fn ordinary(to: IpAddr, bits: u8) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.destination_prefix_length = bits;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message
}
