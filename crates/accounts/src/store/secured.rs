//! How a connection to a shared database is secured (PostgreSQL, "SSL Support").

use super::StoreError;
use sqlx::postgres::PgConnectOptions;
use std::net::IpAddr;
use std::str::FromStr as _;

/// The address, with `sslmode=verify-full` where the server may be on another machine and nothing was said of TLS. The
/// library would do as libpq does: go on without TLS, and look at no certificate. `said`: the environment says it.
/// Errors: the address cannot be read.
pub(super) fn address(address: &str, said: bool) -> Result<String, StoreError> {
    let options = PgConnectOptions::from_str(address);
    let options = options.map_err(|error| StoreError::Address(error.to_string()))?;
    let query = address.split_once('?').map(|(_, query)| query);
    let mut names = query.iter().flat_map(|query| query.split('&'));
    let said = said || names.any(|one| one.starts_with("sslmode=") || one.starts_with("ssl-mode="));
    if said || options.get_socket().is_some() || is_here(options.get_host()) {
        return Ok(address.to_owned());
    }
    let joint = if query.is_some() { '&' } else { '?' };
    Ok(format!("{address}{joint}sslmode=verify-full"))
}

/// An error about connecting, with the server that `address` names, and without its password.
pub(super) fn named(error: StoreError, address: &str) -> StoreError {
    let why = match &error {
        StoreError::Database(sqlx::Error::Io(error)) => error.to_string(),
        StoreError::Database(error @ sqlx::Error::PoolTimedOut) => error.to_string(),
        _ => return error,
    };
    let Ok(options) = PgConnectOptions::from_str(address) else { return error };
    let server = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    StoreError::Unreached { server, why }
}

/// A folder of sockets, `localhost`, or an address of loopback.
fn is_here(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host.starts_with('/') || host == "localhost" || bare.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::postgres::PgSslMode;

    /// What the library makes of it.
    fn mode(text: &str, said: bool) -> PgSslMode {
        let address = address(text, said).unwrap();
        PgConnectOptions::from_str(&address).unwrap().get_ssl_mode()
    }

    #[test]
    fn a_server_elsewhere_shows_a_certificate_for_its_name() {
        for text in [
            "postgres://u@db.example/x",
            "postgres://u:a@192.0.2.1:5432/x?application_name=y",
            "postgres://u@localhost/x?host=db.example",
            "postgres://u@[2001:db8::1]/x",
        ] {
            assert!(matches!(mode(text, false), PgSslMode::VerifyFull), "{text}");
            assert!(matches!(mode(text, true), PgSslMode::Prefer), "{text}");
        }
    }

    #[test]
    fn a_server_that_is_not_reached_is_named_without_its_password() {
        let failed = || StoreError::Database(std::io::Error::other("no such name").into());
        for (address, server) in [
            ("postgres://u:geheim@db.example/x", "no connection to db.example:5432, which"),
            ("postgres://u:geheim@localhost/x?host=/run/pg", "no connection to /run/pg, which"),
        ] {
            let said = named(failed(), address).to_string();
            assert!(said.contains(server) && said.contains("names: no such name;"), "{said}");
            assert!(said.contains("`database` in [accounts]"), "{said}");
            assert!(!said.contains("geheim"), "{said}");
        }
        let other = named(StoreError::Database(sqlx::Error::PoolClosed), "postgres://u@h/x");
        assert!(matches!(other, StoreError::Database(_)), "{other}");
    }

    #[test]
    fn a_written_mode_holds_and_this_machine_needs_none() {
        for query in ["?sslmode=require", "?x=y&sslmode=require", "?ssl-mode=require"] {
            let text = format!("postgres://u@db.example/x{query}");
            assert!(matches!(mode(&text, false), PgSslMode::Require), "{text}");
        }
        for text in [
            "postgres://u@localhost/x",
            "postgres://u@127.0.0.1/x",
            "postgres://u@[::1]/x",
            "postgres://u@localhost/x?host=/run/postgresql",
            "postgres://u@%2Frun%2Fpostgresql/x",
        ] {
            assert!(matches!(mode(text, false), PgSslMode::Prefer), "{text}");
        }
    }
}
