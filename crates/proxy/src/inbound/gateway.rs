//! Diverted connections: the client believes that it speaks with its destination. Its first bytes may name
//! the destination; the connection goes to the address that the client chose, or to that name.

use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::registry::Protocol;
use crate::resources::arrival::{Diverted, reset};
use crate::session::{LogEntry, OpenTunnel, Session};
use crate::settings::GoTo;
use crate::transfer::budget::EarlyBytes;
use crate::transfer::buffered::{BufferedStream, FIRST_READ};
use crate::wire::first_bytes::{FirstBytesReader, FirstWords, MOST};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::first_bytes::{Config, FirstBytes, Reading};
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::sync::atomic::Ordering::Relaxed;

/// From the first byte to the last of a name: a lost packet of it is sent again within that time.
const REST: Span = Span::from_secs(1);

/// Connects to the destination and relays; whatever fails resets the connection.
pub(crate) async fn serve(session: &Session, diverted: &Diverted) -> Option<OpenTunnel> {
    let to = Destination::from(diverted.to);
    if let Err(failure) = admit(session) {
        session.registration.begin(Protocol::Gateway, to.to_string());
        return refuse(session, Protocol::Gateway, &to.to_string(), &failure);
    }
    // counted until they are sent, however long connecting takes
    let (early, claimed) = first_bytes(session, to.port).await?;
    if let Err(failure) = session.begin_service() {
        session.count_moved(Direction::Up, early.bytes.len());
        session.registration.begin(Protocol::Gateway, to.to_string());
        return refuse(session, Protocol::Gateway, &to.to_string(), &failure);
    }
    let settings = &session.config.settings.gateway;
    let heard = if claimed.is_none() { heard_name(session, diverted) } else { None };
    let shown = match claimed.as_ref().or(heard.as_ref()) {
        Some(named) => format!("{named} ({})", diverted.to.ip()),
        None => to.to_string(),
    };
    let source = (settings.keep_source && !diverted.own).then(|| session.address.ip());
    let (to, claimed) = match (settings.go_to, claimed) {
        (GoTo::Name, Some(named)) => (named, None),
        (_, claimed) => (to, claimed),
    };
    // a name out of an answer is as good as one that the client says: it opens nothing
    let claimed = claimed.or(heard);
    let named = claimed.as_ref().unwrap_or(&to);
    let mut entry = session.begin(Protocol::Gateway, named, None, shown);
    match session.open_diverted(&to, claimed.as_ref(), source).await {
        Ok(way) => {
            entry.status = Some(0);
            Some(session.tunnel_over(way, early, entry))
        }
        Err(failure) => {
            session.count_moved(Direction::Up, early.bytes.len());
            fail(session, &mut entry, &failure)
        }
    }
}

/// The name for which this relay answered the client with its destination's address.
fn heard_name(session: &Session, diverted: &Diverted) -> Option<Destination> {
    let dns = &session.config.shared.dns;
    let heard = locked(&dns.heard);
    let name = heard.name(clock::now(), session.address.ip(), diverted.to.ip())?;
    let host = Host::from_name(name).ok()?;
    dns.counts.named.fetch_add(1, Relaxed);
    Some(Destination { host, port: diverted.to.port() })
}

/// Places the client in its account, which only its address can name.
pub(super) fn admit(session: &Session) -> Result<(), Failure> {
    if session.registration.entry.account().is_none() && session.must_log_in() {
        let text = "this relay requires an account, and such a client cannot log in; its operator can add its address to an account";
        return Err(Failure::new(FailureKind::LogIn, text));
    }
    Ok(session.join_account()?)
}

/// Logs a refusal, and resets the connection.
pub(super) fn refuse(
    session: &Session,
    protocol: Protocol,
    shown: &str,
    failure: &Failure,
) -> Option<OpenTunnel> {
    let mut entry = session.new_entry(protocol);
    entry.target = Some(shown.to_owned());
    fail(session, &mut entry, failure)
}

/// The same for a request that has begun.
pub(super) fn fail(
    session: &Session,
    entry: &mut LogEntry,
    failure: &Failure,
) -> Option<OpenTunnel> {
    session.on_failure(entry, failure);
    reset(&session.client);
    None
}

/// Waits for the client's first bytes, which are relayed later, and the name in them. With them comes the memory that
/// they take. `None`: the relay is stopping, or the client has reset the connection.
async fn first_bytes(session: &Session, port: u16) -> Option<(EarlyBytes, Option<Destination>)> {
    let config =
        Config { silence: session.config.settings.gateway.first_bytes, rest: REST, most: MOST };
    let mut wait = FirstBytes::new(config, clock::now());
    let mut incoming = BufferedStream::new(session.client.clone(), Vec::new());
    let (mut reader, mut words) = (FirstBytesReader::default(), FirstWords::Partial);
    let mut held = None;
    while wait.outcome().is_none() {
        let left = wait.deadline().since(clock::now());
        let more = FIRST_READ.min(MOST - incoming.bytes().len());
        let reading = async {
            session.client.readable().await?;
            // nothing is read before its memory counts; twice, because the reader keeps a copy
            if held.is_none() {
                held = session.permit.hold(2 * MOST).await;
            }
            if held.is_some() { incoming.fill(more).await.map(Some) } else { Ok(None) }
        };
        match session.unless_stopping(tokio::time::timeout(left.into(), reading)).await? {
            Err(_) => wait.on_deadline(clock::now()),
            // no memory: names are not looked for
            Ok(Ok(None)) => break,
            Ok(Ok(Some(0))) => wait.on_end(),
            Ok(Ok(Some(_))) => {
                words = reader.read(incoming.bytes());
                let reading = match words {
                    FirstWords::Partial => Reading::Partial,
                    FirstWords::Nameless | FirstWords::Name { .. } => Reading::Settled,
                };
                wait.on_bytes(clock::now(), incoming.bytes().len(), reading);
            }
            Ok(Err(_)) => {
                session.count_moved(Direction::Up, incoming.bytes().len());
                return None;
            }
        }
    }
    let counts = &session.config.shared.gateway;
    let (counter, name) = match words {
        FirstWords::Name { host, tls: true } => (&counts.named_tls, Some(host)),
        FirstWords::Name { host, tls: false } => (&counts.named_http, Some(host)),
        FirstWords::Partial | FirstWords::Nameless => (&counts.unnamed, None),
    };
    counter.fetch_add(1, Relaxed);
    drop(reader);
    let early = incoming.take();
    if let Some(held) = &mut held {
        // less than before, which is always there
        held.resize(early.capacity()).await;
    }
    let early = match held {
        Some(held) => EarlyBytes::new(early, held),
        None => early.into(),
    };
    Some((early, name.map(|name| Destination { host: Host::Name(name), port })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::fixture;
    use crate::settings::{Account, Limits, Settings};
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn first_bytes_count_where_their_destination_is_refused() {
        let mut settings = Settings::default();
        settings.sharing.list.push(Account {
            name: "home".to_owned(),
            addresses: vec!["127.0.0.0/8".parse().unwrap()],
            peers: Vec::new(),
            limits: Limits::default(),
        });
        let mut reached = fixture("127.0.0.1", None, settings).await;
        let asked = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        reached.client.write_all(asked).await.unwrap();
        let shared = &reached.session.config.shared;
        // loopback is no destination
        let to = ([127, 0, 0, 1], 9).into();
        let diverted = Diverted { to, own: false, _live: shared.gateway.enter() };
        assert!(serve(&reached.session, &diverted).await.is_none());
        shared.quotas.on_second();
        let used = shared.quotas.usage();
        assert_eq!((used[0].up, used[0].down), (asked.len() as u64, 0));
    }
}
