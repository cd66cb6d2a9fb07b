//! SOCKS5 and SOCKS4a.

use crate::error::{Failure, FailureKind};
use crate::inbound::udp;
use crate::observe::registry::Protocol;
use crate::outbound::connect::Purpose;
use crate::session::{OpenTunnel, Session, within};
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::wire::hops::{self, Hop};
use crate::wire::socks::{
    self, BadSocks, METHOD_NONE, METHOD_PASSWORD, METHOD_UNACCEPTABLE, Reply, Request,
};
use ekiden_model::resources::quota::Direction;
use std::io;
use std::net::SocketAddr;

/// Of user name and password (RFC 1929 §2), the longest message.
const LONGEST_MESSAGE: usize = 513;

pub(crate) async fn socks5(session: &Session, mut incoming: BufferedStream) -> Option<OpenTunnel> {
    let limit = session.config.settings.timeouts.request_head;
    let protocol = Protocol::Socks5;
    // bytes up and down before the account is known
    let (method, passed, mut moved) =
        match in_time(within(limit, greet(session, &mut incoming)).await)? {
            Ok(((method, passed), used)) => (method, passed, [used, 2]),
            Err(bad) => {
                let failure = why(session, bad);
                return refuse(
                    session,
                    &mut incoming,
                    protocol,
                    failure,
                    &[5, METHOD_UNACCEPTABLE],
                )
                .await;
            }
        };
    if method == METHOD_PASSWORD {
        let read = read(&mut incoming, socks::read_password);
        let no = socks::password_reply(false);
        let (user, password) = match in_time(within(limit, read).await)? {
            Ok((read, used)) => {
                moved = [moved[0] + used, moved[1] + no.len()];
                read
            }
            Err(bad) => return refuse(session, &mut incoming, protocol, bad, &no).await,
        };
        match session.log_in(&user, &password).await {
            Ok(account) => session.set_account(Some(account)),
            Err(failure) => return refuse(session, &mut incoming, protocol, failure, &no).await,
        }
        session.answer(&socks::password_reply(true)).await.ok()?;
    }
    let asked = in_time(within(limit, read(&mut incoming, socks::read_request)).await);
    if let Err(not) = session.join_account() {
        let answer = socks::write_reply(Reply::NotAllowed, unspecified());
        return refuse(session, &mut incoming, protocol, not, &answer).await;
    }
    if let Err(failure) = session.begin_service() {
        let answer = socks::write_reply(failure.socks(), unspecified());
        return refuse(session, &mut incoming, protocol, failure, &answer).await;
    }
    let (asked, used) = match asked? {
        Ok(asked) => asked,
        Err(bad) => {
            let answer = socks::write_reply(reply_to(&bad), unspecified());
            return refuse(session, &mut incoming, protocol, bad, &answer).await;
        }
    };
    if let Err(over) = pass(session, [moved[0] + used, moved[1]]).await {
        let answer = socks::write_reply(over.socks(), unspecified());
        return refuse(session, &mut incoming, protocol, over, &answer).await;
    }
    let destination = match asked {
        Request::Connect(destination) => destination,
        Request::Associate => {
            Box::pin(udp::associate(session, incoming)).await;
            return None;
        }
    };
    let mut entry = session.begin(Protocol::Socks5, &destination, None, destination.to_string());
    let name = &session.config.settings.name;
    let opened = match passed.contains(&Hop::of(name.as_bytes())) {
        true => Err(Failure::came_around()),
        false => {
            let via = hops::to_via(&passed, name);
            session.open(&destination, Purpose::Tunnel { via: &via }).await
        }
    };
    match opened {
        Ok(way) => {
            let bound = way.connection.stream.local_addr().unwrap_or_else(|_| unspecified());
            let answer = socks::write_reply(Reply::Succeeded, bound);
            let opened = session.answer_opened(&answer, (&mut entry, 0)).await;
            opened.then(|| session.tunnel_over(way, incoming.take(), entry))
        }
        Err(failure) => {
            let reply = failure.socks();
            entry.status = Some(reply as u16);
            session.on_failure(&mut entry, &failure);
            end(session, &mut incoming, &socks::write_reply(reply, unspecified())).await
        }
    }
}

/// The message or why it is malformed; `None` when the connection broke.
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

/// Reads the client's methods, and answers with the chosen one. Also the relays that the request has passed.
async fn greet(
    session: &Session,
    incoming: &mut BufferedStream,
) -> io::Result<Result<((u8, Vec<Hop>), usize), BadSocks>> {
    let choose = |bytes: &[u8]| {
        let offered = socks::read_methods(bytes)?;
        let chosen = |methods: &[u8]| -> Result<_, BadSocks> {
            Ok((choose(session, methods)?, hops::from_methods(methods)))
        };
        Ok(offered.map(|(methods, used)| (chosen(methods), used)))
    };
    let read = read(incoming, choose).await?;
    let chosen = read.and_then(|(chosen, used)| Ok((chosen?, used)));
    if let Ok(((method, _), _)) = &chosen {
        write_all(&incoming.stream, &[5, *method]).await?;
    }
    Ok(chosen)
}

/// Why a client that has not logged in is refused: the account of its address, where that is barred.
fn why(session: &Session, otherwise: impl Into<Failure>) -> Failure {
    session.barred().unwrap_or_else(|| otherwise.into())
}

/// The method for a client that offers these. A client that can log in must, unless its address identifies it: some
/// offer a password that they do not have (Java's). An address whose account is barred identifies nobody.
fn choose(session: &Session, methods: &[u8]) -> Result<u8, BadSocks> {
    let (none, password) = (methods.contains(&METHOD_NONE), methods.contains(&METHOD_PASSWORD));
    if session.config.directory.is_none() {
        return if none { Ok(METHOD_NONE) } else { Err(BadSocks::OtherMethods) };
    }
    let known = session.registration.entry.account().is_some();
    if none && known {
        return Ok(METHOD_NONE);
    }
    if password && session.may_log_in() {
        return Ok(METHOD_PASSWORD);
    }
    if none && !session.must_log_in() { Ok(METHOD_NONE) } else { Err(BadSocks::NoLogIn) }
}

/// Counts what opens a tunnel, up and down, once its account is known.
async fn pass(session: &Session, [up, down]: [usize; 2]) -> Result<(), Failure> {
    session.pass_head(Direction::Up, up).await?;
    tokio::select! {
        biased;
        passed = session.pass_head(Direction::Down, down) => passed,
        () = session.client.broken() => Err(Failure::client_gone(&session.client.error())),
    }
}

/// Reads a message and its length, or why it is malformed.
async fn read<T>(
    incoming: &mut BufferedStream,
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, BadSocks>,
) -> io::Result<Result<(T, usize), BadSocks>> {
    loop {
        match parse(incoming.bytes()) {
            Ok(Some((message, used))) => {
                incoming.consume(used);
                return Ok(Ok((message, used)));
            }
            Ok(None) if incoming.fill(LONGEST_MESSAGE).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(None) => {}
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

pub(crate) async fn socks4(session: &Session, mut incoming: BufferedStream) -> Option<OpenTunnel> {
    let limit = session.config.settings.timeouts.request_head;
    let (protocol, no) = (Protocol::Socks4a, socks::write_socks4_reply(false));
    let read = read(&mut incoming, socks::read_socks4);
    let (destination, used) = match in_time(within(limit, read).await)? {
        Ok(read) => read,
        Err(bad) => return refuse(session, &mut incoming, protocol, bad, &no).await,
    };
    if session.registration.entry.account().is_none() && session.must_log_in() {
        let text = "this relay requires an account, and SOCKS4a has no passwords; use SOCKS5";
        let failure = why(session, Failure::new(FailureKind::LogIn, text));
        return refuse(session, &mut incoming, protocol, failure, &no).await;
    }
    if let Err(not) = session.join_account() {
        return refuse(session, &mut incoming, protocol, not, &no).await;
    }
    if let Err(failure) = session.begin_service() {
        return refuse(session, &mut incoming, protocol, failure, &no).await;
    }
    if let Err(over) = pass(session, [used, 0]).await {
        return refuse(session, &mut incoming, protocol, over, &no).await;
    }
    let mut entry = session.begin(protocol, &destination, None, destination.to_string());
    match session.open(&destination, Purpose::Tunnel { via: b"" }).await {
        Ok(way) => {
            let answer = socks::write_socks4_reply(true);
            let opened = session.answer_opened(&answer, (&mut entry, 90)).await;
            opened.then(|| session.tunnel_over(way, incoming.take(), entry))
        }
        Err(failure) => {
            entry.status = Some(91);
            session.on_failure(&mut entry, &failure);
            end(session, &mut incoming, &no).await
        }
    }
}

impl From<BadSocks> for Failure {
    fn from(bad: BadSocks) -> Self {
        Self::new(FailureKind::Malformed(400), bad.to_string())
    }
}

async fn refuse(
    session: &Session,
    incoming: &mut BufferedStream,
    protocol: Protocol,
    failure: impl Into<Failure>,
    answer: &[u8],
) -> Option<OpenTunnel> {
    session.on_failure(&mut session.new_entry(protocol), &failure.into());
    end(session, incoming, answer).await
}

/// Sends the last answer. What came behind the request is of no use, and counts.
async fn end(
    session: &Session,
    incoming: &mut BufferedStream,
    answer: &[u8],
) -> Option<OpenTunnel> {
    session.count_moved(Direction::Up, incoming.discard());
    session.send_and_close(answer).await;
    None
}

fn unspecified() -> SocketAddr {
    ([0, 0, 0, 0], 0).into()
}
