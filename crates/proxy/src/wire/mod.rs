//! Wire formats without I/O: HTTP/1.1 heads, bodies and targets; SOCKS4a and SOCKS5.

pub mod http;
pub mod socks;
