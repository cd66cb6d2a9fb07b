//! The SOCKS5 and SOCKS4a front doors.

use crate::chain::Purpose;
use crate::failure::{Failure, Kind};
use crate::incoming::{Incoming, write_all};
use crate::registry::Protocol;
use crate::session::{Session, Tunnel, within};
use crate::socks::{
    self, BadSocks, METHOD_NONE, METHOD_PASSWORD, METHOD_UNACCEPTABLE, Reply, Request, UserPassword,
};
use crate::udp;
use std::io;
use std::net::SocketAddr;

/// RFC 1928.
pub(crate) async fn socks5(session: &Session, mut incoming: Incoming) -> Option<Tunnel> {
    let limit = session.world.settings.timeouts.request_head;
    let protocol = Protocol::Socks5;
    let method = match in_time(within(limit, greet(session, &mut incoming)).await) {
        Some(Ok(method)) => method,
        Some(Err(bad)) => {
            return refuse(session, protocol, &bad, &[5, METHOD_UNACCEPTABLE]).await;
        }
        None => return None,
    };
    if method == METHOD_PASSWORD {
        let read = in_time(within(limit, read_password(&mut incoming)).await);
        let no = socks::password_reply(false);
        let (user, password) = match read {
            Some(Ok(read)) => read,
            Some(Err(bad)) => return refuse(session, protocol, &bad, &no).await,
            None => return None,
        };
        match session.log_in(&user, &password).await {
            Ok(member) => session.belongs_to(Some(member)),
            Err(failure) => {
                session.failed(&session.nothing(protocol), &failure);
                return end(session, &no).await;
            }
        }
        session.answer(&socks::password_reply(true)).await.ok()?;
    }
    let asked = in_time(within(limit, read_request(&mut incoming)).await);
    if let Err(not) = session.join_household() {
        session.failed(&session.nothing(protocol), &not.into());
        return end(session, &socks::write_reply(Reply::NotAllowed, unspecified())).await;
    }
    let destination = match asked {
        Some(Ok(Request::Connect(destination))) => destination,
        Some(Ok(Request::Associate)) => {
            Box::pin(udp::associate(session, incoming)).await;
            return None;
        }
        Some(Err(bad)) => {
            let answer = socks::write_reply(reply_to(&bad), unspecified());
            return refuse(session, protocol, &bad, &answer).await;
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

/// The methods, and our choice.
async fn greet(session: &Session, incoming: &mut Incoming) -> io::Result<Result<u8, BadSocks>> {
    let chosen = loop {
        match socks::read_methods(incoming.bytes()) {
            Ok(Some((methods, used))) => {
                let chosen = choose(session, methods);
                incoming.consume(used);
                break chosen;
            }
            Ok(None) => more(incoming).await?,
            Err(bad) => return Ok(Err(bad)),
        }
    };
    if let Ok(method) = chosen {
        write_all(&incoming.stream, &[5, method]).await?;
    }
    Ok(chosen)
}

/// The method for a client that offers these. Who can log in does, unless its address says who it is.
fn choose(session: &Session, methods: &[u8]) -> Result<u8, BadSocks> {
    let (none, password) = (methods.contains(&METHOD_NONE), methods.contains(&METHOD_PASSWORD));
    if session.world.directory.is_none() {
        return if none { Ok(METHOD_NONE) } else { Err(BadSocks::OtherMethods) };
    }
    let known = session.registered.entry.member().is_some();
    if none && known {
        return Ok(METHOD_NONE);
    }
    if password && session.may_take_passwords().is_ok() {
        return Ok(METHOD_PASSWORD);
    }
    if none && !session.must_log_in() { Ok(METHOD_NONE) } else { Err(BadSocks::NoLogIn) }
}

async fn read_password(incoming: &mut Incoming) -> io::Result<Result<UserPassword, BadSocks>> {
    loop {
        match socks::read_password(incoming.bytes()) {
            Ok(Some((read, used))) => {
                incoming.consume(used);
                return Ok(Ok(read));
            }
            Ok(None) => more(incoming).await?,
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

async fn read_request(incoming: &mut Incoming) -> io::Result<Result<Request, BadSocks>> {
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
    if session.registered.entry.member().is_none() && session.must_log_in() {
        let text = "this relay serves those it knows, and SOCKS4a has no passwords; use SOCKS5";
        session.failed(&session.nothing(Protocol::Socks4a), &Failure::new(Kind::LogIn, text));
        return end(session, &socks::write_socks4_reply(false)).await;
    }
    if let Err(not) = session.join_household() {
        session.failed(&session.nothing(Protocol::Socks4a), &not.into());
        return end(session, &socks::write_socks4_reply(false)).await;
    }
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
