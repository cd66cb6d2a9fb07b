//! The HTTP front door: requests one after the other on a client's connection, each passed on and
//! answered, or a CONNECT that becomes a tunnel.

use super::BadMessage;
use super::body::{self, Body};
use super::cached;
use super::exchange::{Exchange, exchange};
use super::fields;
use super::head::{Limits, Request, Version, read_request};
use super::reply;
use super::target::{self, Target};
use crate::accounts::read_basic;
use crate::cache::{Found, Hit, Visit, only_if_cached};
use crate::chain::Purpose;
use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::incoming::{Incoming, close_gently};
use crate::registry::{Protocol, State};
use crate::resources::watch;
use crate::session::{LogEntry, Session, Tunnel, within};
use std::io;

/// What comes after a request.
enum Next {
    /// Another request.
    Request,
    /// The end of the connection.
    Close,
    /// A tunnel.
    Tunnel(Tunnel),
}

/// Serves requests until the connection ends or becomes a tunnel. Its future is small: what a
/// request needs is in a box that is gone between requests.
pub(crate) async fn serve(session: &Session, mut incoming: Incoming) -> Option<Tunnel> {
    loop {
        match Box::pin(one(session, &mut incoming)).await {
            Next::Tunnel(tunnel) => return Some(tunnel),
            Next::Close => return None,
            Next::Request => {}
        }
        session.set_idle();
        if session.is_stopping() {
            return None;
        }
        if incoming.bytes().is_empty() {
            let limit = session.world.settings.timeouts.keep_alive;
            session.resources().park(&session.registered.entry);
            // nothing is read before it counts as active: whoever looks whether it has spoken sees it
            let spoke = async {
                watch(&session.client).await;
                Ok(())
            };
            let spoke = session.unless_stopping(within(limit, spoke)).await;
            // closed for somebody else: nothing that comes now may be carried out, nobody could be told
            if !session.resources().resume(&session.registered.entry) {
                return None;
            }
            match spoke {
                Some(Ok(())) => {}
                _ => return None,
            }
            match incoming.fill(usize::MAX).await {
                Ok(n) if n > 0 => {}
                _ => return None,
            }
        }
        session.registered.set_state(State::Reading);
    }
}

/// One request.
async fn one(session: &Session, incoming: &mut Incoming) -> Next {
    session.registered.set_protocol(Protocol::Http);
    let request = match read_head(session, incoming).await {
        Ok(Ok(request)) => request,
        Ok(Err(bad)) => {
            let mut entry = session.nothing(Protocol::Http);
            return refuse(session, &mut entry, &bad.into(), None).await;
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut && !incoming.bytes().is_empty() => {
            let mut entry = session.nothing(Protocol::Http);
            let limit = session.world.settings.timeouts.request_head;
            let late = Failure::new(
                Kind::Malformed(408),
                format!("the head did not arrive within {limit}"),
            );
            return refuse(session, &mut entry, &late, None).await;
        }
        // half-closed within a head: it can still be told
        Err(error)
            if error.kind() == io::ErrorKind::UnexpectedEof && !incoming.bytes().is_empty() =>
        {
            let mut entry = session.nothing(Protocol::Http);
            let cut = BadMessage::bad("the connection ended within the request head");
            return refuse(session, &mut entry, &cut.into(), None).await;
        }
        Err(_) => return Next::Close,
    };
    if let Err(failure) = admit(session, &request).await {
        let mut entry = session.nothing(Protocol::Http);
        entry.method = Some(request.method.clone());
        return refuse(session, &mut entry, &failure, Some(&request)).await;
    }
    match target::of_request(&request) {
        Ok(Target::Tunnel(destination)) => connect(session, incoming, &request, &destination).await,
        Ok(Target::Forward { destination, authority, path }) => {
            let plan = Plan { request, destination, authority, path, visit: None };
            forward(session, incoming, plan).await
        }
        Err(bad) => {
            let mut entry = session.nothing(Protocol::Http);
            entry.method = Some(request.method.clone());
            refuse(session, &mut entry, &bad.into(), Some(&request)).await
        }
    }
}

/// Whose request it is: the household's at that address, or the one whose user and password it brings. Asked
/// for each, since a connection may carry those of several (RFC 7617 says nothing of connections).
async fn admit(session: &Session, request: &Request) -> Result<(), Failure> {
    if session.world.directory.is_none() {
        return Ok(());
    }
    let placed = session.placed()?;
    let brought = fields::values(&request.fields, "proxy-authorization").next();
    let member = match (placed, brought) {
        (Some(member), _) => Some(member),
        (None, Some(value)) => {
            let Some((user, password)) = read_basic(value) else {
                let text = "what came to log in with is not Basic, the only scheme here";
                return Err(Failure::new(Kind::LogIn, text));
            };
            Some(session.log_in(&user, &password).await?)
        }
        (None, None) if session.must_log_in() => {
            session.may_take_passwords()?;
            let text = "this relay serves those it knows; log in with user and password";
            return Err(Failure::new(Kind::LogIn, text));
        }
        (None, None) => None,
    };
    session.belongs_to(member);
    Ok(session.join_household()?)
}

async fn read_head(
    session: &Session,
    incoming: &mut Incoming,
) -> io::Result<Result<Request, BadMessage>> {
    let settings = &session.world.settings;
    let limits = head_limits(session);
    let reading = async {
        loop {
            match read_request(incoming.bytes(), limits) {
                Ok(Some((request, used))) => {
                    incoming.consume(used);
                    return Ok(Ok(request));
                }
                Err(bad) => return Ok(Err(bad)),
                Ok(None) => {}
            }
            if incoming.fill(limits.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    };
    within(settings.timeouts.request_head, reading).await
}

/// The budgets of a head.
pub(crate) fn head_limits(session: &Session) -> Limits {
    let budgets = &session.world.settings.budgets;
    Limits { bytes: budgets.head.as_usize(), fields: budgets.fields.into() }
}

/// Answers with a refusal and closes, since where the next request begins is not known or not worth
/// knowing.
async fn refuse(
    session: &Session,
    entry: &mut LogEntry,
    failure: &Failure,
    request: Option<&Request>,
) -> Next {
    let status = failure.status();
    entry.status = Some(status);
    session.failed(entry, failure);
    let head_only = request.is_some_and(|request| request.method == "HEAD");
    let text =
        reply::refusal(status, &session.world.settings.name, &failure.text, false, head_only);
    session.last_words(&text).await;
    Next::Close
}

async fn connect(
    session: &Session,
    incoming: &mut Incoming,
    request: &Request,
    to: &Destination,
) -> Next {
    let method = Some(request.method.clone());
    let mut entry = session.begin(Protocol::Connect, to, method, to.to_string());
    let checked = checks(session, request).and_then(|()| match body::of_request(request) {
        Ok(Body::None | Body::Length(0)) => Ok(()),
        Ok(_) => Err(BadMessage::bad("CONNECT does not have a body").into()),
        Err(bad) => Err(bad.into()),
    });
    if let Err(failure) = checked {
        return refuse(session, &mut entry, &failure, None).await;
    }
    match session.open(to, Purpose::Tunnel).await {
        Ok(way) => {
            if session.answer(reply::connected(request.version)).await.is_err() {
                return Next::Close;
            }
            entry.status = Some(200);
            Next::Tunnel(session.tunnel_over(way, incoming.take(), entry))
        }
        Err(failure) => refuse(session, &mut entry, &failure, None).await,
    }
}

/// What holds for every request: it has not been here before, and `Connection` names nothing it needs.
fn checks(session: &Session, request: &Request) -> Result<(), Failure> {
    let name = session.world.settings.name.as_bytes();
    if fields::via(&request.fields).any(|hop| hop.eq_ignore_ascii_case(name)) {
        let text =
            "this request has passed this relay before; a chain of proxies leads back to itself";
        return Err(Failure::new(Kind::Loop, text));
    }
    // before anybody is connected to
    fields::end_to_end(&request.fields)?;
    Ok(())
}

/// A request to be passed on.
pub(super) struct Plan {
    pub(super) request: Request,
    pub(super) destination: Destination,
    /// Its `Host`.
    pub(super) authority: String,
    /// Its target in origin form.
    pub(super) path: String,
    /// On its way past the cache, if there is one.
    pub(super) visit: Option<Box<Visit>>,
}

async fn forward(session: &Session, incoming: &mut Incoming, mut plan: Plan) -> Next {
    let path = plan.path.split('?').next().unwrap_or_default();
    let url = format!("http://{}{path}", plan.authority);
    let method = Some(plan.request.method.clone());
    let mut entry = session.begin(Protocol::Http, &plan.destination, method, url);
    let checked = checks(session, &plan.request).and_then(|()| {
        if plan.request.method == "TRACE" {
            let text = "TRACE is not passed on: it would show what other relays added";
            return Err(Failure::new(Kind::Malformed(405), text));
        }
        Ok(body::of_request(&plan.request)?)
    });
    let body = match checked {
        Ok(body) => body,
        Err(failure) => return refuse(session, &mut entry, &failure, Some(&plan.request)).await,
    };
    match max_forwards(&mut plan.request) {
        Ok(true) => {}
        Ok(false) => return answer_options(session, &mut entry).await,
        Err(bad) => return refuse(session, &mut entry, &bad.into(), Some(&plan.request)).await,
    }
    if let Some(cache) = &session.world.means.cache {
        match cached::consult(session, cache, &plan, body).await {
            Found::Pass(visit) => plan.visit = Some(visit),
            Found::Nothing => return nothing_stored(session, &mut entry, &plan).await,
            Found::Hit(hit) => {
                // while it is sent it is in memory, whatever the cache does meanwhile
                let means = &session.world.means;
                if let Some(_held) = means.reserve(hit.stored.body.len()) {
                    hit.on_used();
                    return answer_from_cache(session, &mut entry, &plan, &hit).await;
                }
                if only_if_cached(&plan.request) {
                    return nothing_stored(session, &mut entry, &plan).await;
                }
                hit.on_not_used();
            }
        }
    }
    match exchange(session, incoming, &plan, body, &mut entry).await {
        Ok(Exchange::Done { keep_client }) => {
            session.log(&entry, "done");
            if keep_client { Next::Request } else { end(session).await }
        }
        Ok(Exchange::Upgraded(tunnel)) => Next::Tunnel(session.upgraded(*tunnel, entry)),
        Ok(Exchange::Broken(why)) => {
            session.registered.count_failed();
            session.log(&entry, &why);
            Next::Close
        }
        Err(failure) => refuse(session, &mut entry, &failure, Some(&plan.request)).await,
    }
}

/// The client does not want the origin asked (RFC 9111 §5.2.1.7).
async fn nothing_stored(session: &Session, entry: &mut LogEntry, plan: &Plan) -> Next {
    let text = "the client wants a stored response or none, and there is none for this request";
    let nothing = Failure::new(Kind::Malformed(504), text);
    refuse(session, entry, &nothing, Some(&plan.request)).await
}

async fn answer_from_cache(
    session: &Session,
    entry: &mut LogEntry,
    plan: &Plan,
    hit: &Hit,
) -> Next {
    session.registered.set_state(State::Relaying);
    entry.status = Some(if hit.client_has_it { 304 } else { hit.stored.status });
    let keep_client = client_keeps_alive(&plan.request) && !session.is_stopping();
    match cached::send(session, &plan.request, hit, keep_client).await {
        Ok(()) => {
            session.log(entry, "from the cache");
            if keep_client { Next::Request } else { end(session).await }
        }
        Err(why) => {
            session.registered.count_failed();
            session.log(entry, &why);
            Next::Close
        }
    }
}

async fn end(session: &Session) -> Next {
    close_gently(&session.client).await;
    Next::Close
}

/// Counts `Max-Forwards` down for OPTIONS (RFC 9110 §7.6.2); false when it ends here.
fn max_forwards(request: &mut Request) -> Result<bool, BadMessage> {
    if request.method != "OPTIONS" {
        return Ok(true);
    }
    for field in &mut request.fields {
        if field.name.eq_ignore_ascii_case("max-forwards") {
            let text = std::str::from_utf8(&field.value).unwrap_or_default();
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let n: u32 = text
                .parse()
                .ok()
                .filter(|_| digits)
                .ok_or(BadMessage::bad("Max-Forwards is not a number"))?;
            if n == 0 {
                return Ok(false);
            }
            field.value = (n - 1).to_string().into_bytes();
        }
    }
    Ok(true)
}

async fn answer_options(session: &Session, entry: &mut LogEntry) -> Next {
    entry.status = Some(200);
    session.log(entry, "answered here");
    let name = &session.world.settings.name;
    let text = format!(
        "HTTP/1.1 200 OK\r\nVia: 1.1 {name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    session.last_words(text.as_bytes()).await;
    Next::Close
}

/// Whether the client will send another request after this one.
pub(super) fn client_keeps_alive(request: &Request) -> bool {
    fields::keeps_alive(request.version, &request.fields)
}

/// Whether the client asks to speak something else on this connection.
pub(super) fn wants_upgrade(request: &Request) -> bool {
    request.version == Version::Http11
        && fields::has(&request.fields, "connection", "upgrade")
        && fields::values(&request.fields, "upgrade").next().is_some()
}
