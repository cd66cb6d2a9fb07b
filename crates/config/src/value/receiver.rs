//! Who is sent something: the URL of a webhook or a collector, mail addresses, the URL of a mail server.

use super::pattern::shorten;
use super::url;
use ekiden_proxy::destination::Host;

/// How a mail server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    /// TLS from the first byte (RFC 8314 section 3.3).
    Implicit,
    /// STARTTLS (RFC 3207), without which nothing is sent.
    Upgraded,
    /// None: the server is on this machine, and asks for no password.
    Local,
}

/// A server that takes mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// How it is spoken to.
    pub tls: MailTls,
    /// Its host, an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user, if it asks for one.
    pub user: Option<String>,
}

impl MailServer {
    /// Reads `smtps://user@host:465` or `smtp://user@host:587`; the port may be left off.
    /// Errors: in words; they never repeat the user or a password.
    pub fn read(text: &str) -> Result<Self, String> {
        const SCHEMES: &str = "a mail server's URL begins with `smtps://` or `smtp://`";
        let (scheme, rest) = text.split_once("://").ok_or(SCHEMES)?;
        let (implicit, usual) = match scheme {
            "smtps" => (true, ":465"),
            "smtp" => (false, ":587"),
            _ => return Err(SCHEMES.to_owned()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let has_port = place.rsplit_once(']').map_or(place, |(_, after)| after).contains(':');
        let place = if has_port { place.to_owned() } else { format!("{place}{usual}") };
        let (host, port) = url::host_and_port(&place)?;
        let local = match Host::from_name(&host) {
            Ok(Host::Address(address)) => address.to_canonical().is_loopback(),
            _ => host == "localhost",
        };
        let user = match user.map(url::credentials).transpose()? {
            Some((_, Some(_))) => {
                return Err("no password belongs here: use `mail_password_file`".to_owned());
            }
            Some((user, None)) => Some(user),
            None => None,
        };
        // what needs no password there may lack a certificate, too
        let tls = match (implicit, local && user.is_none()) {
            (true, _) => MailTls::Implicit,
            (false, true) => MailTls::Local,
            (false, false) => MailTls::Upgraded,
        };
        Ok(Self { tls, host, port, user })
    }
}

/// The parts of a webhook's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    /// Whether it is `https://`.
    pub tls: bool,
    /// Its host, an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Host and port as in the field `Host`.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl WebhookUrl {
    /// Reads `https://host/path` or `http://host:port/path`. Errors: in words, without the path, which may be a secret.
    pub fn read(text: &str) -> Result<Self, String> {
        const SCHEMES: &str = "a webhook's URL begins with `https://` or `http://`";
        let (scheme, rest) = text.split_once("://").ok_or(SCHEMES)?;
        let (tls, usual) = match scheme {
            "https" => (true, ":443"),
            "http" => (false, ":80"),
            _ => return Err(SCHEMES.to_owned()),
        };
        if text.len() > 2048
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
            || text.contains('#')
        {
            return Err("a webhook's URL has at most 2048 letters of ASCII, no spaces and no `#`"
                .to_owned());
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(
                "user and password do not belong here: use `webhook_authorization_file`".to_owned()
            );
        }
        let has_port =
            authority.rsplit_once(']').map_or(authority, |(_, after)| after).contains(':');
        let place = if has_port { authority.to_owned() } else { format!("{authority}{usual}") };
        let (host, port) = url::host_and_port(&place)?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { tls, host, port, authority: authority.to_owned(), path })
    }

    /// The URL as it may be shown: its path may be a secret.
    pub fn masked(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let path = if self.path == "/" { "/" } else { "/***" };
        format!("{scheme}://{}{path}", self.authority)
    }
}

/// The URL of a collector: a base to which `/v1/traces` is added (OpenTelemetry protocol exporter, "Endpoint URLs").
pub(crate) fn collector(text: &str) -> Result<(), String> {
    match WebhookUrl::read(text) {
        Ok(url) if url.path.contains('?') => Err("a collector's URL has no `?`".to_owned()),
        Ok(_) => Ok(()),
        Err(why) => Err(why
            .replace("a webhook's URL", "a collector's URL")
            .replace("webhook_authorization_file", "authorization_file")),
    }
}

pub(crate) fn webhook(text: &str) -> Result<(), String> {
    WebhookUrl::read(text).map(|_| ())
}

/// A mail address: what is before the `@` and the domain, without a name or quotes (RFC 5321 section 4.1.2).
pub(crate) fn address(text: &str) -> Result<(), String> {
    let parts = text.rsplit_once('@');
    let fine = parts.is_some_and(|(user, domain)| !user.is_empty() && !domain.is_empty())
        && text.len() <= 254
        && text
            .chars()
            .all(|c| !c.is_control() && !c.is_whitespace() && !"<>()[],;:\\\"".contains(c))
        && text.matches('@').count() == 1;
    match fine {
        true => Ok(()),
        false => {
            Err(format!("\"{}\" is not a mail address such as you@example.org", shorten(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_servers_are_spoken_to_in_three_ways() {
        let read = |text| MailServer::read(text).map(|s| (s.tls, s.host, s.port, s.user));
        let me = || Some("me@example.org".to_owned());
        let mail = || "mail.example".to_owned();
        assert_eq!(
            read("smtps://me%40example.org@mail.example"),
            Ok((MailTls::Implicit, mail(), 465, me()))
        );
        assert_eq!(
            read("smtp://me@example.org@mail.example:25/"),
            Ok((MailTls::Upgraded, mail(), 25, me()))
        );
        assert_eq!(read("smtp://[::1]"), Ok((MailTls::Local, "::1".to_owned(), 587, None)));
        assert_eq!(
            read("smtp://localhost:25"),
            Ok((MailTls::Local, "localhost".to_owned(), 25, None))
        );
        assert_eq!(read("smtp://me@localhost").unwrap().0, MailTls::Upgraded);
        for wrong in [
            "mail.example",
            "http://mail.example",
            "smtp://",
            "smtp://h:0",
            "smtp://h:x",
            "smtp://h/x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let why = read("smtp://me:geheim@mail.example").unwrap_err();
        assert!(why.contains("mail_password_file") && !why.contains("geheim"), "{why}");
    }

    #[test]
    fn webhooks_are_shown_without_their_path() {
        let url = WebhookUrl::read("https://hooks.example/services/T0/secret?x=1").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path.as_str()),
            ("hooks.example", 443, "/services/T0/secret?x=1")
        );
        assert_eq!(url.masked(), "https://hooks.example/***");
        let url = WebhookUrl::read("http://[2001:db8::7]:8080").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("2001:db8::7", 8080, "/"));
        assert_eq!(url.masked(), "http://[2001:db8::7]:8080/");
        for wrong in [
            "ftp://h/",
            "https://",
            "https:///x",
            "https://u:p@h/",
            "https://h/ x",
            "https://h/#x",
            "https://h:99999/",
        ] {
            assert!(webhook(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn collectors_have_a_base_url() {
        for fine in ["http://collector:4318", "https://c.example/otlp/", "http://[::1]:4318"] {
            assert_eq!(collector(fine), Ok(()), "{fine}");
        }
        let why = collector("collector:4318").unwrap_err();
        assert!(why.contains("a collector's URL begins with"), "{why}");
        let why = collector("http://u:p@c/").unwrap_err();
        assert!(why.ends_with("use `authorization_file`"), "{why}");
        assert!(collector("http://c/?x").is_err());
    }

    #[test]
    fn addresses_have_two_parts() {
        for fine in ["you@example.org", "a.b+c@localhost", "田中@example.jp"] {
            assert_eq!(address(fine), Ok(()), "{fine}");
        }
        for wrong in [
            "you",
            "@example.org",
            "you@",
            "a@b@c",
            "You <you@example.org>",
            "a b@c",
            "a@b\r\nRCPT",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
