//! Wire formats without I/O: HTTP/1.1 heads, bodies and targets, heads of HTTP/2; SOCKS4a and SOCKS5; names in first bytes; relays that a request has passed;
//! headers of the PROXY protocol; messages of the DNS; QR codes;
//! names in QUIC Initials.

pub mod dns;
pub mod first_bytes;
pub mod hops;
pub mod http;
pub mod proxy_header;
pub mod qr;
pub mod quic_initial;
pub mod socks;
