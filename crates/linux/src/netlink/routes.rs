//! Routes, and what they have TCP do.

use super::links::{family, octets};
use super::message::{Request, attribute, attributes, text, word};
use super::{Failure, Netlink};
use std::net::IpAddr;

// include/uapi/linux/rtnetlink.h
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
const RTAX_WINDOW: u16 = 3;
const RTAX_ADVMSS: u16 = 8;
const RTAX_INITCWND: u16 = 11;
const RTAX_RTO_MIN: u16 = 13;
const RTAX_INITRWND: u16 = 14;
const RTAX_QUICKACK: u16 = 15;
const RTAX_CC_ALGO: u16 = 16;
/// `struct rtmsg`.
const FIXED: usize = 12;

/// A way to a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to: an address and how many bits of it count; zero bits are all of the family.
    pub destination: (IpAddr, u8),
    /// Through whom; none when the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// Over which device.
    pub dev: String,
    /// What it has TCP do.
    pub metrics: RouteMetrics,
}

/// What a route has TCP do; what is `None` is as the system has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMetrics {
    /// The congestion control, as `cubic`; an ordinary user may ask for any the kernel has loaded.
    pub congestion: Option<String>,
    /// The first congestion window, segments.
    pub initcwnd: Option<u32>,
    /// The first receive window offered, segments.
    pub initrwnd: Option<u32>,
    /// Whether every segment is acknowledged at once.
    pub quickack: Option<bool>,
    /// The shortest retransmission timeout, milliseconds.
    pub rto_min: Option<u32>,
    /// The largest packet, bytes.
    pub mtu: Option<u32>,
    /// The largest segment asked of the peer, bytes.
    pub advmss: Option<u32>,
    /// The largest receive window offered, bytes.
    pub window: Option<u32>,
}

impl Netlink {
    /// Sets a route, in place of one to the same destination.
    ///
    /// # Errors
    /// `ENODEV`, `ENETUNREACH` when `via` is not on the link, `EINVAL` for a congestion control that the
    /// kernel does not have.
    pub fn route(&self, route: &Route) -> Result<(), Failure> {
        let index = self.index(&route.dev)?;
        let (to, bits) = route.destination;
        let scope = if route.via.is_none() && to.is_ipv4() {
            libc::RT_SCOPE_LINK
        } else {
            libc::RT_SCOPE_UNIVERSE
        };
        let fixed = fixed(to, bits, scope);
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWROUTE, flags, &fixed);
        request.put(libc::RTA_DST, &octets(to)).number(libc::RTA_OIF, index);
        if let Some(via) = route.via {
            request.put(libc::RTA_GATEWAY, &octets(via));
        }
        request.nest(libc::RTA_METRICS, &[], |inside| route.metrics.write(inside));
        self.change(&format!("the route to {to}/{bits} over {}", route.dev), &mut request)
    }

    /// The metrics that the kernel really has for the route to exactly this destination in the main
    /// table; `None` when there is no such route.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn route_metrics(&self, to: IpAddr, bits: u8) -> Result<Option<RouteMetrics>, Failure> {
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed(to, 0, 0));
        let wanted = octets(to);
        let mut found = None;
        self.ask(&format!("a look at the route to {to}/{bits}"), &mut request, |kind, body| {
            let rest = body.get(FIXED..).unwrap_or_default();
            let header = [family(to), bits];
            let same = kind == libc::RTM_NEWROUTE
                && body.starts_with(&header)
                && body.get(4) == Some(&libc::RT_TABLE_MAIN)
                // the kernel leaves the destination away when no bit of it counts
                && attribute(rest, libc::RTA_DST).is_none_or(|destination| destination == wanted);
            if same && found.is_none() {
                let metrics = attribute(rest, libc::RTA_METRICS).unwrap_or_default();
                found = Some(RouteMetrics::read(metrics));
            }
        })?;
        Ok(found)
    }
}

impl RouteMetrics {
    fn write(&self, into: &mut Request) {
        let numbers = [
            (RTAX_MTU, self.mtu),
            (RTAX_WINDOW, self.window),
            (RTAX_ADVMSS, self.advmss),
            (RTAX_INITCWND, self.initcwnd),
            (RTAX_RTO_MIN, self.rto_min),
            (RTAX_INITRWND, self.initrwnd),
            (RTAX_QUICKACK, self.quickack.map(u32::from)),
        ];
        for (kind, value) in numbers {
            if let Some(value) = value {
                into.number(kind, value);
            }
        }
        if self.rto_min.is_some() {
            into.number(RTAX_LOCK, 1 << RTAX_RTO_MIN); // unlocked, TCP does not look at it
        }
        if let Some(name) = &self.congestion {
            into.text(RTAX_CC_ALGO, name);
        }
    }

    fn read(metrics: &[u8]) -> Self {
        let mut read = Self::default();
        for (kind, value) in attributes(metrics) {
            let number = word(value, 0);
            match kind {
                RTAX_MTU => read.mtu = number,
                RTAX_WINDOW => read.window = number,
                RTAX_ADVMSS => read.advmss = number,
                RTAX_INITCWND => read.initcwnd = number,
                RTAX_RTO_MIN => read.rto_min = number,
                RTAX_INITRWND => read.initrwnd = number,
                RTAX_QUICKACK => read.quickack = number.map(|value| value != 0),
                RTAX_CC_ALGO => read.congestion = Some(text(value)),
                _ => {}
            }
        }
        read
    }
}

/// `struct rtmsg` of an ordinary route in the main table.
fn fixed(to: IpAddr, bits: u8, scope: u8) -> [u8; FIXED] {
    let (table, by) = (libc::RT_TABLE_MAIN, libc::RTPROT_STATIC);
    [family(to), bits, 0, 0, table, by, scope, libc::RTN_UNICAST, 0, 0, 0, 0]
}
