//! The client's side of HTTP CONNECT, SOCKS5 and SOCKS4a, without a socket: send what [`Handshake::begin`]
//! gives, hand received bytes to [`Handshake::receive`], and do what it answers until [`Next::Done`].

use std::net::SocketAddr;

/// How to ask for a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Not at all: the peer forwards every byte.
    None,
    /// HTTP/1.1 CONNECT.
    Connect,
    /// SOCKS5 without authentication (RFC 1928).
    Socks5,
    /// SOCKS4, and 4a for names.
    Socks4a,
    /// No proxy: HTTP/1.1 GET of the destination, a web server. The head of its answer opens the "tunnel".
    Get,
}

/// Where the tunnel is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A name for the proxy to resolve, of at most 255 bytes, and a port.
    Name(String, u16),
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Send this, then receive.
    Send(Vec<u8>),
    Receive,
    /// The tunnel stands; these bytes came through it already.
    Done(Vec<u8>),
}

/// Why there is no tunnel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// The proxy answered CONNECT, or a server GET, with another status.
    #[error("the proxy answered {0}")]
    Http(String),
    /// A SOCKS reply code (RFC 1928 §6; 90–93 in SOCKS4).
    #[error("the proxy answered SOCKS code {0}")]
    Socks(u8),
    /// Something that is not an answer.
    #[error("the proxy sent an invalid answer: {0:02x?}")]
    Nonsense(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(super) struct Handshake {
    method: Method,
    destination: Destination,
    greeted: bool,
    received: Vec<u8>,
}

impl Handshake {
    pub(super) fn new(method: Method, destination: Destination) -> Self {
        Self { method, destination, greeted: false, received: Vec::new() }
    }

    /// The first thing to do: [`Next::Send`], or [`Next::Done`] where there is nothing to ask.
    pub(super) fn begin(&self) -> Next {
        match self.method {
            Method::None => Next::Done(Vec::new()),
            Method::Connect => {
                let to = match &self.destination {
                    Destination::Address(a) => a.to_string(),
                    Destination::Name(name, port) => format!("{name}:{port}"),
                };
                Next::Send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").into_bytes())
            }
            Method::Get => {
                let host = match &self.destination {
                    Destination::Address(a) if a.port() == 80 => a.ip().to_string(),
                    Destination::Address(a) => a.to_string(),
                    Destination::Name(name, port) => format!("{name}:{port}"),
                };
                let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                Next::Send(head.into_bytes())
            }
            Method::Socks5 => Next::Send(vec![5, 1, 0]),
            Method::Socks4a => Next::Send(socks4(&self.destination)),
        }
    }

    /// Takes what came. Errors: [`Refused`], and the connection is of no further use.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Next, Refused> {
        self.received.extend_from_slice(bytes);
        match self.method {
            Method::None => Ok(Next::Done(std::mem::take(&mut self.received))),
            Method::Connect | Method::Get => self.http(),
            Method::Socks5 => self.socks5(),
            Method::Socks4a => self.socks4(),
        }
    }

    fn http(&mut self) -> Result<Next, Refused> {
        let Some(end) = self.received.windows(4).position(|w| w == b"\r\n\r\n") else {
            return Ok(Next::Receive);
        };
        let text = String::from_utf8_lossy(&self.received);
        let line = text.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some("200") if line.starts_with("HTTP/1.") => Ok(self.done(end + 4)),
            Some(_) if line.starts_with("HTTP/1.") => Err(Refused::Http(line.to_owned())),
            _ => Err(Refused::Nonsense(self.received.clone())),
        }
    }

    fn socks5(&mut self) -> Result<Next, Refused> {
        if !self.greeted {
            return match self.received[..] {
                [5, 0] => {
                    self.greeted = true;
                    self.received.clear();
                    Ok(Next::Send(socks5(&self.destination)))
                }
                [5, code] => Err(Refused::Socks(code)),
                [] | [5] => Ok(Next::Receive),
                _ => Err(Refused::Nonsense(self.received.clone())),
            };
        }
        match self.received[..] {
            [5, code, ..] if code != 0 => Err(Refused::Socks(code)),
            [5, 0, 0, kind, first, ..] => {
                let length = match kind {
                    1 => 10,
                    3 => 7 + usize::from(first),
                    4 => 22,
                    _ => return Err(Refused::Nonsense(self.received.clone())),
                };
                if self.received.len() < length { Ok(Next::Receive) } else { Ok(self.done(length)) }
            }
            [] | [5] | [5, 0] | [5, 0, 0] | [5, 0, 0, _] => Ok(Next::Receive),
            _ => Err(Refused::Nonsense(self.received.clone())),
        }
    }

    fn socks4(&mut self) -> Result<Next, Refused> {
        match self.received[..] {
            [0, 90, _, _, _, _, _, _, ..] => Ok(self.done(8)),
            [0, code, ..] if code != 90 => Err(Refused::Socks(code)),
            [] | [0, ..] => Ok(Next::Receive),
            _ => Err(Refused::Nonsense(self.received.clone())),
        }
    }

    fn done(&mut self, head: usize) -> Next {
        let rest = self.received.split_off(head);
        self.received.clear();
        Next::Done(rest)
    }
}

fn socks5(to: &Destination) -> Vec<u8> {
    let (host, port) = match to {
        Destination::Address(SocketAddr::V4(a)) => {
            ([&[1][..], &a.ip().octets()].concat(), a.port())
        }
        Destination::Address(SocketAddr::V6(a)) => {
            ([&[4][..], &a.ip().octets()].concat(), a.port())
        }
        Destination::Name(name, port) => {
            ([&[3, name.len() as u8], name.as_bytes()].concat(), *port)
        }
    };
    [&[5, 1, 0], &host[..], &port.to_be_bytes()].concat()
}

fn socks4(to: &Destination) -> Vec<u8> {
    // 4a: an impossible address 0.0.0.x, an empty user, then the name.
    let (port, ip, name) = match to {
        Destination::Address(SocketAddr::V4(a)) => (a.port(), a.ip().octets(), String::new()),
        Destination::Address(SocketAddr::V6(a)) => {
            (a.port(), [0, 0, 0, 1], format!("{}\0", a.ip()))
        }
        Destination::Name(name, port) => (*port, [0, 0, 0, 1], format!("{name}\0")),
    };
    [&[4, 1], &port.to_be_bytes()[..], &ip, b"\0", name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to() -> Destination {
        Destination::Address(SocketAddr::from(([127, 0, 0, 1], 80)))
    }

    /// Answers byte by byte end where the whole answer does, and what follows is the tunnel's.
    #[test]
    fn parses_answers_byte_by_byte() {
        let cases: [(Method, &[&[u8]]); 4] = [
            (Method::Connect, &[b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello"]),
            (Method::Get, &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"]),
            (
                Method::Socks5,
                &[&[5, 0], &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80, b'h', b'e', b'l', b'l', b'o']],
            ),
            (Method::Socks4a, &[&[0, 90, 0, 0, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o']]),
        ];
        for (method, answers) in cases {
            let mut handshake = Handshake::new(method, to());
            let mut through = Vec::new();
            let mut done = false;
            for byte in answers.concat() {
                if done {
                    through.push(byte);
                    continue;
                }
                if let Next::Done(rest) = handshake.receive(&[byte]).unwrap() {
                    assert!(rest.is_empty());
                    done = true;
                }
            }
            assert_eq!(through, b"hello", "{method:?}");
        }
    }

    #[test]
    fn reports_refusals() {
        let answer = |method, bytes: &[u8]| Handshake::new(method, to()).receive(bytes);
        assert_eq!(
            answer(Method::Connect, b"HTTP/1.1 403 Forbidden\r\n\r\n"),
            Err(Refused::Http("HTTP/1.1 403 Forbidden".into()))
        );
        assert_eq!(answer(Method::Socks5, &[5, 255]), Err(Refused::Socks(255)));
        assert_eq!(answer(Method::Socks4a, &[0, 91]), Err(Refused::Socks(91)));
        assert!(matches!(answer(Method::Socks5, b"HTTP"), Err(Refused::Nonsense(_))));
    }

    #[test]
    fn leaves_names_to_the_proxy() {
        let name = Destination::Name("a.test".into(), 443);
        assert_eq!(
            Handshake::new(Method::Socks4a, name.clone()).begin(),
            Next::Send(b"\x04\x01\x01\xbb\0\0\0\x01\0a.test\0".to_vec())
        );
        assert_eq!(socks5(&name), b"\x05\x01\0\x03\x06a.test\x01\xbb");
    }
}
