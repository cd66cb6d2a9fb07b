//! Why a TLS handshake failed: what the other side did, and what to try.

use super::verify::{NotPinned, UnknownIssuer};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, OtherError};
use std::io;
use std::time::{Duration, UNIX_EPOCH};

/// Whose side a failed handshake was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// The certificate is not one to trust.
    Certificate,
    /// It does not speak TLS, or not as it must.
    Protocol,
    /// It closed the connection.
    Closed,
    /// A system call failed.
    System,
}

/// A failed handshake with a server, as what the server did, to follow its name: `does not speak
/// TLS on that port; …`. `keys`: the names of what the operator can set for authorities and for a
/// fingerprint, where there is something.
pub fn describe(error: &io::Error, keys: Option<[&str; 2]>) -> (TlsFailure, String) {
    use TlsFailure::{Certificate, Closed, Protocol, System};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(why)) => (Certificate, certificate(why, keys)),
        Some(Error::InvalidMessage(_)) => {
            (Protocol, "does not speak TLS on that port; use `http://` for one without TLS".into())
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            (Protocol, "does not speak HTTP/1.1 within TLS".into())
        }
        Some(Error::AlertReceived(alert)) => {
            let hint = match alert {
                AlertDescription::AccessDenied
                | AlertDescription::UnrecognisedName
                | AlertDescription::InternalError => {
                    "; perhaps it has no certificate for that name yet"
                }
                _ => "",
            };
            (Protocol, format!("refuses TLS with the alert {alert:?}{hint}; its log says why"))
        }
        Some(other) => (Protocol, format!("does not speak TLS as this relay does: {other}")),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            let text = "closed the connection during the TLS handshake; perhaps it does not speak TLS on that port";
            (Closed, text.into())
        }
        None => (System, format!("broke off the TLS handshake: {error}")),
    }
}

fn certificate(why: &CertificateError, keys: Option<[&str; 2]>) -> String {
    let pin = |text: &str| match keys {
        Some([_, fingerprint]) => {
            format!("; to trust exactly this one, set {fingerprint} = \"{text}\"")
        }
        None => format!(" ({text})"),
    };
    match why {
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = match expected {
                ServerName::DnsName(name) => name.as_ref().to_owned(),
                ServerName::IpAddress(address) => std::net::IpAddr::from(*address).to_string(),
                other => format!("{other:?}"),
            };
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let presented = match names.as_slice() {
                [] => "no name".to_owned(),
                names => names.join(", "),
            };
            format!(
                "shows a certificate for {presented}, and not for {expected}; use a name that is in its certificate"
            )
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "shows a certificate that expired on {}; this machine's clock says {}; if that is right, it has to be renewed there",
            date(*not_after),
            date(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "shows a certificate that begins to be valid on {}; this machine's clock says {}: set the clock if that is wrong",
            date(*not_before),
            date(*time)
        ),
        CertificateError::Other(OtherError(inner)) => {
            if let Some(NotPinned(shown)) = inner.downcast_ref() {
                return format!(
                    "shows another certificate than the pinned one; it is {shown}; find out whether it was renewed before you take that one"
                );
            }
            if let Some(UnknownIssuer(shown)) = inner.downcast_ref() {
                let own =
                    keys.map_or_else(String::new, |[ca, _]| format!("; if it is yours, set {ca}"));
                return format!(
                    "shows a certificate of an issuer that this machine does not trust{own}{}",
                    pin(shown)
                );
            }
            match inner.to_string() {
                text if text.contains("CaUsedAsEndEntity") => {
                    let own = keys.map_or_else(String::new, |[_, fingerprint]| {
                        format!("; it can be pinned by {fingerprint}")
                    });
                    format!("shows an authority's certificate as its own{own}")
                }
                text => format!("shows a certificate that cannot be checked: {text}"),
            }
        }
        other => format!("shows a certificate that cannot be used: {other}"),
    }
}

/// The name in a debugging text such as `DnsName("a.example")`.
fn bare(presented: &str) -> &str {
    presented.split('"').nth(1).unwrap_or(presented)
}

fn date(time: UnixTime) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(time.as_secs());
    humantime::format_rfc3339_seconds(time).to_string()
}
