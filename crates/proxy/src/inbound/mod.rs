//! The client protocols: HTTP, SOCKS, TLS and HTTP/2, flows from tunnels, diverted connections, forwarded
//! ports, UDP, questions for names.

pub(crate) mod detect;
pub(crate) mod dns;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod port_forward;
pub(crate) mod socks;
mod spent;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod udp;
#[cfg(feature = "wireguard")]
pub(crate) mod wireguard;
