//! The SOCKS5 and SOCKS4a front doors.

use crate::chain::Purpose;
use crate::failure::{Failure, Kind};
use crate::incoming::{Incoming, write_all};
use crate::registry::Protocol;
use crate::session::{Session, Tunnel, within};
use crate::socks::{self, BadSocks, METHOD_NONE, METHOD_UNACCEPTABLE, Reply, Request};
use crate::udp;
use std::io;
use std::net::SocketAddr;

/// RFC 1928.
pub(crate) async fn socks5(session: &Session, mut incoming: Incoming) -> Option<Tunnel> {
    let limit = session.world.settings.timeouts.request_head;
    let mut greeted = false;
    let read = in_time(within(limit, read_socks5(&mut incoming, &mut greeted)).await);
    let destination = match read {
        Some(Ok(Request::Connect(destination))) => destination,
        Some(Ok(Request::Associate)) => {
            Box::pin(udp::associate(session, incoming)).await;
            return None;
        }
        Some(Err(bad)) => {
            let answer = if greeted {
                socks::write_reply(reply_to(&bad), unspecified())
            } else {
                vec![5, METHOD_UNACCEPTABLE]
            };
            return refuse(session, Protocol::Socks5, &bad, &answer).await;
        }
        None => return None,
    };
    let mut entry = session.begin(Protocol::Socks5, &destination, None, destination.to_string());
    match session.open(&destination, Purpose::Tunnel).await {
        Ok(way) => {
            let bound = way.opened.stream.local_addr().unwrap_or_else(|_| unspecified());
            let answer = socks::write_reply(Reply::Succeeded, bound);
            session.answer(&answer).await.ok()?;
            entry.status = Some(0);
            Some(session.tunnel_over(way, incoming.take(), entry))
        }
        Err(failure) => {
            let reply = failure.socks();
            entry.status = Some(reply as u16);
            session.failed(&entry, &failure);
            end(session, &socks::write_reply(reply, unspecified())).await
        }
    }
}

/// What was read, or why it was not; `None` when the connection broke.
fn in_time<T>(read: io::Result<Result<T, BadSocks>>) -> Option<Result<T, BadSocks>> {
    match read {
        Ok(read) => Some(read),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Err(BadSocks::Cut)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Some(Err(BadSocks::Late)),
        Err(_) => None,
    }
}

const fn reply_to(bad: &BadSocks) -> Reply {
    match bad {
        BadSocks::Command(_) => Reply::CommandNotSupported,
        BadSocks::AddressType(_) => Reply::AddressNotSupported,
        _ => Reply::GeneralFailure,
    }
}

/// The methods, our choice, the request.
async fn read_socks5(
    incoming: &mut Incoming,
    greeted: &mut bool,
) -> io::Result<Result<Request, BadSocks>> {
    loop {
        match socks::read_methods(incoming.bytes()) {
            Ok(Some((methods, used))) => {
                if !methods.contains(&METHOD_NONE) {
                    return Ok(Err(BadSocks::OtherMethods));
                }
                incoming.consume(used);
                break;
            }
            Ok(None) => more(incoming).await?,
            Err(bad) => return Ok(Err(bad)),
        }
    }
    write_all(&incoming.stream, &[5, METHOD_NONE]).await?;
    *greeted = true;
    loop {
        match socks::read_request(incoming.bytes()) {
            Ok(Some((request, used))) => {
                incoming.consume(used);
                return Ok(Ok(request));
            }
            Ok(None) => more(incoming).await?,
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

/// SOCKS4 and SOCKS4a.
pub(crate) async fn socks4(session: &Session, mut incoming: Incoming) -> Option<Tunnel> {
    let limit = session.world.settings.timeouts.request_head;
    let reading = async {
        loop {
            match socks::read_socks4(incoming.bytes()) {
                Ok(Some((destination, used))) => {
                    incoming.consume(used);
                    return Ok(Ok(destination));
                }
                Ok(None) => more(&mut incoming).await?,
                Err(bad) => return Ok(Err(bad)),
            }
        }
    };
    let destination = match in_time(within(limit, reading).await) {
        Some(Ok(destination)) => destination,
        Some(Err(bad)) => {
            let answer = socks::write_socks4_reply(false);
            return refuse(session, Protocol::Socks4a, &bad, &answer).await;
        }
        None => return None,
    };
    let mut entry = session.begin(Protocol::Socks4a, &destination, None, destination.to_string());
    match session.open(&destination, Purpose::Tunnel).await {
        Ok(way) => {
            session.answer(&socks::write_socks4_reply(true)).await.ok()?;
            entry.status = Some(90);
            Some(session.tunnel_over(way, incoming.take(), entry))
        }
        Err(failure) => {
            entry.status = Some(91);
            session.failed(&entry, &failure);
            end(session, &socks::write_socks4_reply(false)).await
        }
    }
}

async fn more(incoming: &mut Incoming) -> io::Result<()> {
    match incoming.fill(usize::MAX).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

async fn refuse(
    session: &Session,
    protocol: Protocol,
    bad: &BadSocks,
    answer: &[u8],
) -> Option<Tunnel> {
    let failure = Failure::new(Kind::Malformed(400), bad.to_string());
    session.failed(&session.nothing(protocol), &failure);
    end(session, answer).await
}

async fn end(session: &Session, answer: &[u8]) -> Option<Tunnel> {
    session.last_words(answer).await;
    None
}

fn unspecified() -> SocketAddr {
    ([0, 0, 0, 0], 0).into()
}
