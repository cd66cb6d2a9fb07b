//! The page for this relay's users, out of the proxy's own port: how to set up a device, and what an account has used
//! and has left. JavaScript is for the speed test alone.
//!
//! **Who sees an account's figures**: its own devices, by their address or their tunnel, and those that log in (Basic,
//! RFC 7617, where passwords may be sent). A page of another site must not read them, or guess passwords, by a name that
//! it makes lead here (DNS rebinding). So outside TLS figures by address and log-ins need a *Host* that no stranger has.

mod html;
pub(super) mod password;
pub(super) mod speed;
mod words;

use super::own::{Offered, OwnRequest};
use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::registry::Protocol;
use crate::observe::status::AccountStatus;
use crate::policy::accounts::{AccountDetails, KnownAccount, read_basic};
use crate::session::Session;
use crate::wire::http::fields;
use crate::wire::http::head::Request;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use words::Words;

/// Where a browser logs in.
const LOG_IN: &str = "/?login";

/// What there is to show.
struct Page {
    words: &'static Words,
    /// The relay's name.
    relay: String,
    /// The proxy for this client's devices; `None`: none is known that serves them.
    offered: Option<Offered>,
    /// Whether there is a script for browsers.
    script: bool,
    /// The peer of the tunnel that a speed test measures.
    tunnel: Option<String>,
    account: Shown,
}

/// Whose figures are shown.
enum Shown {
    /// This relay has no accounts.
    NoAccounts,
    /// No account of the configuration claims the client.
    NotClaimed,
    /// Nobody's: not known who asks. Whether there is a way to log in here.
    Unknown { may_log_in: bool },
    /// Nobody's: asked by a name that others could have made lead here. Whether a log-in is refused for that.
    ByStrangeName { logs_in: bool },
    /// Not now, and why.
    Refused(String),
    Account {
        name: String,
        status: Box<AccountStatus>,
        details: AccountDetails,
        /// Whether passwords may be sent here.
        may_log_in: bool,
    },
}

/// The answer, if the request asks for the page.
pub(super) async fn answer(
    session: &Session,
    request: &Request,
    own: &OwnRequest<'_>,
) -> Option<Vec<u8>> {
    let settings = &session.config.settings.pac;
    if !settings.page || !matches!(own.target, "/" | LOG_IN) {
        return None;
    }
    let (status, more, account) = match identified(session, request, own).await {
        Ok(account @ Shown::ByStrangeName { logs_in: true }) => (403, String::new(), account),
        Ok(account) => (200, String::new(), account),
        Err(failure) => refused(&failure),
    };
    let languages = fields::values(&request.fields, "accept-language");
    let languages = languages.filter_map(|value| std::str::from_utf8(value).ok());
    let page = Page {
        words: words::of(languages),
        relay: session.config.settings.name.clone(),
        offered: own.offered(session),
        script: settings.serve,
        tunnel: speed::tunnel(session),
        account,
    };
    let mut answer = page.head(status, &more);
    if request.method == "GET" {
        let body = page.body();
        answer.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    } else {
        // nothing is drawn to be measured (RFC 9110 §9.3.2)
        answer.push_str("\r\n");
    }
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = Some(request.method.clone());
    entry.target = Some(format!("http://{}/", own.proxy));
    entry.status = Some(status);
    session.log(&mut entry, "answered by the relay");
    Some(answer.into_bytes())
}

/// The status, further fields, and what is shown of an account that may not be seen.
fn refused(failure: &Failure) -> (u16, String, Shown) {
    let shown = Shown::Refused(failure.text.clone());
    match failure.kind {
        // towards the relay itself, not a destination beyond it
        FailureKind::LogIn => {
            let field = "WWW-Authenticate: Basic realm=\"Ekiden\", charset=\"UTF-8\"\r\n";
            (401, field.to_owned(), Shown::Unknown { may_log_in: true })
        }
        _ => {
            let wait = failure.retry_after.map(|span| span.as_millis().div_ceil(1_000).max(1));
            let field =
                wait.map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
            (failure.status(), field, shown)
        }
    }
}

async fn identified(
    session: &Session,
    request: &Request,
    own: &OwnRequest<'_>,
) -> Result<Shown, Failure> {
    let strange = is_strange(own);
    if session.config.directory.is_none() {
        return Ok(match claimed(session) {
            None => Shown::NoAccounts,
            Some(None) => Shown::NotClaimed,
            Some(Some(_)) if strange => Shown::ByStrangeName { logs_in: false },
            Some(Some(name)) => configured(session, &name),
        });
    }
    let brought = fields::values(&request.fields, "authorization").next().and_then(read_basic);
    let logs_in = brought.is_some() || own.target == LOG_IN;
    if strange && logs_in {
        session.check_password_path(brought.is_some())?;
        // a script of others would guess passwords, from its visitor's address
        return Ok(Shown::ByStrangeName { logs_in });
    }
    if let Some((user, password)) = brought {
        let account = session.log_in(&user, &password).await?;
        return Ok(known(session, &account));
    }
    if own.target == LOG_IN {
        session.check_password_path(false)?;
        return Err(Failure::new(FailureKind::LogIn, "log in with user and password"));
    }
    match session.identify()? {
        Some(_) if strange => Ok(Shown::ByStrangeName { logs_in }),
        Some(account) => Ok(known(session, &account)),
        None => Ok(match claimed(session).flatten() {
            Some(_) if strange => Shown::ByStrangeName { logs_in },
            Some(name) => configured(session, &name),
            None if strange && session.may_log_in() => Shown::ByStrangeName { logs_in },
            None => Shown::Unknown { may_log_in: session.may_log_in() },
        }),
    }
}

fn known(session: &Session, account: &Arc<KnownAccount>) -> Shown {
    let directory = session.config.directory.as_ref();
    let details = directory.and_then(|directory| directory.details(account.id));
    let status = session.config.shared.quotas.account(&account.name);
    Shown::Account {
        name: account.name.clone(),
        status: Box::new(status.unwrap_or_default()),
        details: details.unwrap_or_default(),
        may_log_in: session.may_log_in(),
    }
}

/// The account of the configuration that limits the client; `None`: the configuration has none.
fn claimed(session: &Session) -> Option<Option<Arc<str>>> {
    let peer = session.arrival.as_ref().map(|arrival| arrival.peer());
    session.config.shared.quotas.claiming(session.address.ip(), peer)
}

fn configured(session: &Session, name: &str) -> Shown {
    let status = session.config.shared.quotas.account(name).unwrap_or_default();
    let ends = status.period_ends_in_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let ends = ends.and_then(|span| SystemTime::now().checked_add(span));
    let renews = ends.map(|at| humantime::format_rfc3339_seconds(at).to_string());
    let details = AccountDetails { renews, ..AccountDetails::default() };
    Shown::Account { name: name.to_owned(), status: Box::new(status), details, may_log_in: false }
}

/// Whether others could have made the name that the request has lead here, so that its browser may run their script.
fn is_strange(own: &OwnRequest<'_>) -> bool {
    !own.tls && !is_own_name(&own.proxy)
}

/// Whether nobody else can make the name of `host:port` lead here: an address, or a name that only the local network
/// resolves (RFC 6762, RFC 8375, and names without dots).
fn is_own_name(proxy: &str) -> bool {
    let name = match Destination::parse(proxy, None) {
        Ok(Destination { host: Host::Name(name), .. }) => name,
        Ok(Destination { host: Host::Address(_), .. }) => return true,
        Err(_) => return false,
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let local = [".local", ".home.arpa", ".internal", ".localhost"];
    !name.contains('.') || local.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_are_told_from_local_ones() {
        for own in ["192.0.2.1:3128", "[2001:db8::1]:80", "relay:3128", "relay.local:80"] {
            assert!(is_own_name(own), "{own}");
        }
        for strange in
            ["relay.example:3128", "127.0.0.1.nip.io:80", "local.example:1", "a+b.evil.example:80"]
        {
            assert!(!is_own_name(strange), "{strange}");
        }
    }
}
