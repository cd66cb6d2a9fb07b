//! The address of a database that relays share, as libpq writes it (PostgreSQL, "Connection URIs").

use std::net::IpAddr;
use url::{Host, Url};

const SCHEMES: &str = "a database's address begins with postgres://";

/// What may be said of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseAddress {
    /// The address without its password.
    pub shown: String,
    /// Whether a password stands in it.
    pub holds_password: bool,
    /// Whether the server may be on another machine.
    pub is_remote: bool,
    /// `sslmode`, where it is written.
    pub security: Option<String>,
}

impl DatabaseAddress {
    /// Errors: in words, which repeat nothing of it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(SCHEMES.to_owned());
        }
        let mut url =
            Url::parse(text).map_err(|error| format!("a database's address is a URL: {error}"))?;
        if url.fragment().is_some() {
            return Err("an address of a database has no `#`; in a password it is %23".to_owned());
        }
        let last = |names: &[&str]| {
            let of_these = url.query_pairs().filter(|(name, _)| names.contains(&&**name));
            of_these.last().map(|(_, value)| value.into_owned())
        };
        if last(&["password"]).is_some() {
            return Err(
                "a password stands before the `@`, or in PGPASSWORD or ~/.pgpass; not behind a `?`"
                    .to_owned(),
            );
        }
        let is_remote = match last(&["host", "hostaddr"]) {
            Some(host) => !is_here(&host),
            None => match url.host() {
                Some(Host::Domain(name)) => !is_here(name),
                Some(Host::Ipv4(address)) => !is_loopback(address.into()),
                Some(Host::Ipv6(address)) => !is_loopback(address.into()),
                None => false,
            },
        };
        let security = last(&["sslmode", "ssl-mode"]);
        let holds_password = url.password().is_some();
        let mut shown = text.to_owned();
        if holds_password && url.set_password(Some("***")).is_ok() {
            shown = url.into();
        }
        Ok(Self { shown, holds_password, is_remote, security })
    }

    /// Whether the server's certificate and name are looked at, or nothing crosses a network.
    pub(crate) fn is_safe(&self) -> bool {
        let checked = |mode: &str| matches!(mode, "verify-ca" | "verify-full");
        !self.is_remote || self.security.as_deref().is_none_or(checked)
    }
}

/// A socket's path, `localhost`, or an address of loopback.
fn is_here(host: &str) -> bool {
    let is_path = host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f");
    is_path || host == "localhost" || host.parse().is_ok_and(is_loopback)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (String, bool) {
        let address = DatabaseAddress::read(text).unwrap();
        (address.shown, address.holds_password)
    }

    #[test]
    fn masks_the_password() {
        let masked = ("postgres://u:***@h/db?x=1".to_owned(), true);
        for password in ["s", "s@ec", "%2F:", ""] {
            let text = format!("postgres://u:{password}@h/db?x=1");
            let expected = if password.is_empty() { (text.clone(), false) } else { masked.clone() };
            assert_eq!(shown(&text), expected);
        }
        for text in ["postgres://u@h/db", "postgres://h", "postgresql:///db?host=/run/a:b@c"] {
            assert_eq!(shown(text), (text.to_owned(), false));
        }
    }

    #[test]
    fn refuses_what_would_show_a_password() {
        for text in [
            "postgres://u@h/db?password=geheim",
            "postgres://u@h/db?sslmode=require&password=geheim",
            "postgres://u@h/db?%70assword=geheim",
            "postgres://u:ge#heim@h/db",
            "postgres://u:geheim@h:port/db",
            "/var/lib/geheim",
        ] {
            let why = DatabaseAddress::read(text).unwrap_err();
            assert!(!why.contains("heim"), "{why}");
        }
    }

    #[test]
    fn knows_where_the_server_is() {
        for (text, is_remote) in [
            ("postgres://db.example/x", true),
            ("postgres://u@192.0.2.1", true),
            ("postgres://u@[2001:db8::1]:5432/x", true),
            ("postgres://localhost/x?host=db.example", true),
            ("postgres://localhost/x?hostaddr=192.0.2.1", true),
            ("postgres://u@localhost/x", false),
            ("postgres://u@127.0.0.2/x", false),
            ("postgres://u@[::1]/x", false),
            ("postgres://db.example/x?host=/run/postgresql", false),
            ("postgres://u@%2Frun%2Fpostgresql/x", false),
            ("postgres:///x", false),
        ] {
            let address = DatabaseAddress::read(text).unwrap();
            assert_eq!(address.is_remote, is_remote, "{text}");
        }
    }

    #[test]
    fn knows_what_lets_others_pose_as_the_server() {
        for (query, is_safe) in [
            ("", true),
            ("?sslmode=verify-full", true),
            ("?ssl-mode=verify-ca", true),
            ("?sslmode=require", false),
            ("?sslmode=verify-full&sslmode=prefer", false),
        ] {
            let of = |host: &str| {
                DatabaseAddress::read(&format!("postgres://u@{host}/x{query}")).unwrap().is_safe()
            };
            assert_eq!((of("db.example"), of("127.0.0.1")), (is_safe, true), "{query}");
        }
    }
}
