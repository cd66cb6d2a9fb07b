//! The own password: a form, and what becomes of it. Whoever knows a user's password may change it, wherever passwords
//! may be sent.
//!
//! **Requests of other sites**: a browser names the site that a form was in (`Origin`, `Sec-Fetch-Site`), and any but
//! this page is refused. It would have to know the old password besides. A site whose name was made to lead here
//! (DNS rebinding) names itself, so outside TLS no form is taken under a name that strangers can have.

use super::html::{escaped, frame, head, name};
use super::is_strange;
use super::words::{self, Words};
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::inbound::http::own::{OwnRequest, PASSWORD};
use crate::inbound::http::plan::STATE;
use crate::observe::registry::Protocol;
use crate::policy::accounts::PasswordChange;
use crate::resources::HeldMemory;
use crate::session::{Session, within};
use crate::transfer::buffered::BufferedStream;
use crate::wire::http::body::{self, Body};
use crate::wire::http::fields;
use crate::wire::http::form;
use crate::wire::http::head::Request;
use ekiden_model::units::Span;
use std::io;

/// The longest form: three passwords of 255 bytes and a user, each byte as `%XX`.
const LONGEST: usize = 4 * 1024;

/// What the page says.
enum Told {
    /// Nothing yet.
    Form,
    /// It has the new password.
    Changed,
    /// It has not, and why.
    Not(u16, String, Option<u64>),
}

impl Told {
    fn not(status: u16, why: impl Into<String>) -> Self {
        Self::Not(status, why.into(), None)
    }
}

/// The answer, if the request is about a password. `held` is the memory of the request's head.
pub(in crate::inbound::http) async fn answer(
    session: &Session,
    request: &Request,
    own: &OwnRequest<'_>,
    (incoming, held): (&mut BufferedStream, &mut HeldMemory),
) -> Option<Vec<u8>> {
    if !session.config.settings.pac.page || own.target != PASSWORD {
        return None;
    }
    let (proxy, sends) = (own.proxy.clone(), request.method == "POST");
    let strange = is_strange(own);
    let languages = fields::values(&request.fields, "accept-language");
    let words = words::of(languages.filter_map(|value| std::str::from_utf8(value).ok()));
    let told = if sends {
        match (strange, is_own(session, request, &proxy)) {
            (false, true) => Box::pin(change(session, request, (incoming, held), words)).await,
            (false, false) => Told::not(403, words.strange_form),
            // the reason stands in place of the form
            (true, _) => Told::not(403, words.no_form),
        }
    } else {
        Told::Form
    };
    let relay = &session.config.settings.name;
    let may = match (&session.config.directory, session.may_log_in()) {
        (None, _) => Err(words.no_passwords),
        (Some(_), false) => Err(words.no_log_in),
        (Some(_), true) if strange => Err(words.strange_name),
        (Some(_), true) => Ok(()),
    };
    let status = match &told {
        Told::Not(status, ..) => *status,
        Told::Form | Told::Changed => 200,
    };
    let more = match &told {
        Told::Not(_, _, Some(seconds)) => format!("Retry-After: {seconds}\r\n"),
        _ => String::new(),
    };
    // with another policy browsers would not say in which site the form was
    let mut answer = head((relay, words), status, &more, ("'self'", "same-origin"));
    let page = frame(words, relay, &content(words, &told, may));
    answer.push_str(&format!("Content-Length: {}\r\n\r\n", page.len()));
    if request.method != "HEAD" {
        answer.push_str(&page);
    }
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = Some(request.method.clone());
    entry.target = Some(format!("http://{proxy}{PASSWORD}"));
    entry.status = Some(status);
    session.log(&mut entry, "answered by the relay");
    Some(answer.into_bytes())
}

/// Whether no other site sent the form: a program that is no browser names none.
fn is_own(session: &Session, request: &Request, proxy: &str) -> bool {
    let site = fields::values(&request.fields, "sec-fetch-site").next();
    if site.is_some_and(|site| site != b"same-origin") {
        return false;
    }
    let Some(origin) = fields::values(&request.fields, "origin").next() else { return true };
    let (scheme, port) = if session.tls.is_some() { ("https://", 443) } else { ("http://", 80) };
    let origin = std::str::from_utf8(origin).ok().and_then(|origin| origin.strip_prefix(scheme));
    let origin = origin.and_then(|origin| Destination::parse(origin, Some(port)).ok());
    origin.is_some_and(|origin| origin.to_string() == proxy)
}

async fn change(
    session: &Session,
    request: &Request,
    (incoming, held): (&mut BufferedStream, &mut HeldMemory),
    words: &Words,
) -> Told {
    let kind = fields::values(&request.fields, "content-type").next().unwrap_or_default();
    let is_form = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !is_form.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        return Told::not(415, words.no_form);
    }
    let text = match read(session, request, incoming, held).await {
        Ok(text) => text,
        Err(status) => return Told::not(status, words.no_form),
    };
    let Some([user, old, new, again]) = form::read(&text, ["user", "old", "new", "again"]) else {
        return Told::not(400, words.no_form);
    };
    if new != again {
        return Told::not(422, words.differ);
    }
    if new == old {
        return Told::not(422, words.same);
    }
    // the same guesses are counted, from the same addresses, as of a log-in
    let account = match session.log_in(&user, &old).await {
        Ok(account) => account,
        Err(failure) => return refused(&failure, words),
    };
    let Some(directory) = &session.config.directory else {
        return Told::not(404, words.no_passwords);
    };
    match directory.change_password(&user, &account, &new).await {
        PasswordChange::Changed => Told::Changed,
        PasswordChange::Refused(why) => Told::not(422, why),
        PasswordChange::Busy => Told::Not(503, words.busy.to_owned(), Some(1)),
        PasswordChange::Wait(span) => {
            Told::Not(429, words.soon.to_owned(), Some(whole_seconds(span)))
        }
        // it was a try, and the next is a minute later
        PasswordChange::Away => Told::Not(503, words.away.to_owned(), Some(60)),
        PasswordChange::Late => Told::Not(503, words.late.to_owned(), Some(60)),
    }
}

/// What *Retry-After* says of a wait.
fn whole_seconds(wait: Span) -> u64 {
    wait.as_millis().div_ceil(1_000).max(1)
}

fn refused(failure: &Failure, words: &Words) -> Told {
    let wait = failure.retry_after.map(whole_seconds);
    match failure.kind {
        // no 401: a browser would ask for a log-in of its own
        FailureKind::LogIn => Told::not(403, words.wrong),
        _ => Told::Not(failure.status(), failure.text.clone(), wait),
    }
}

/// The request's body. Errors: the status of the refusal.
async fn read(
    session: &Session,
    request: &Request,
    incoming: &mut BufferedStream,
    held: &mut HeldMemory,
) -> Result<Vec<u8>, u16> {
    let length = match body::of_request(request) {
        Ok(Body::Length(length)) => usize::try_from(length).unwrap_or(usize::MAX),
        Ok(Body::None) => 0,
        Ok(Body::Chunked | Body::UntilClose) => return Err(411),
        Err(_) => return Err(400),
    };
    if length > LONGEST {
        return Err(413);
    }
    if !held.resize(STATE + request.memory() + incoming.capacity() + 2 * LONGEST).await {
        return Err(503);
    }
    let reading = async {
        while incoming.bytes().len() < length {
            let missing = length - incoming.bytes().len();
            incoming.stream.readable().await?;
            if incoming.fill(missing).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(incoming.take_first(length as u64))
    };
    let limit = session.config.settings.timeouts.request_head;
    within(limit, reading).await.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => 408,
        _ => 400,
    })
}

/// The page's own part.
fn content(words: &Words, told: &Told, may: Result<(), &str>) -> String {
    let w = words;
    let said = match told {
        Told::Form => String::new(),
        Told::Changed => format!("<p role=\"status\"><b>{}</b></p>", w.changed),
        Told::Not(_, why, _) => format!("<p class=\"warn\" role=\"alert\">{}</p>", name(why)),
    };
    let form = match (told, may) {
        (Told::Changed, _) => String::new(),
        (_, Err(why)) => format!("<p>{}</p>", escaped(why)),
        (_, Ok(())) => {
            let field = |label: &str, name: &str, kind: &str, fill: &str| {
                format!(
                    "<p><label>{label}<br><input name=\"{name}\" type=\"{kind}\" autocomplete=\"{fill}\" maxlength=\"255\" required></label></p>"
                )
            };
            format!(
                "<form method=\"post\" action=\"{PASSWORD}\">{}{}{}{}<p><small>{}</small></p><p><button>{}</button></p></form>",
                field(w.user, "user", "text", "username"),
                field(w.old, "old", "password", "current-password"),
                field(w.new, "new", "password", "new-password"),
                field(w.again, "again", "password", "new-password"),
                w.rule,
                w.change,
            )
        }
    };
    format!(
        "<section aria-labelledby=\"p\"><h2 id=\"p\">{}</h2>{said}{form}<p><a href=\"/\">{}</a></p></section>",
        w.password, w.back
    )
}
