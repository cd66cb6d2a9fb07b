//! What a certificate says of itself: for whom it is, when it holds, and who vouches for it.

use crate::observe::status::CertificateStatus;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Names that the status shows.
const NAMES: usize = 5;
/// The last second of the year 9999, from which on no time can be written.
const LAST: u64 = 253_402_300_799;

/// What is read of a certificate.
#[derive(Debug)]
pub(super) struct CertificateFacts {
    /// Names first, then addresses.
    names: Vec<String>,
    /// Seconds since 1970, both within.
    from: u64,
    until: u64,
    self_signed: bool,
}

impl CertificateFacts {
    /// `None`: it cannot be read.
    pub(super) fn of(leaf: &CertificateDer<'_>) -> Option<Self> {
        let parsed = ParsedCertificate::try_from(leaf).ok()?;
        // a refusal says the date that it is for
        let from = match refusal(&parsed, 0)? {
            CertificateError::NotValidYetContext { not_before, .. } => not_before.as_secs(),
            _ => 0,
        };
        let until = match refusal(&parsed, u64::MAX)? {
            CertificateError::ExpiredContext { not_after, .. } => not_after.as_secs(),
            _ => return None,
        };
        let shown = webpki::EndEntityCert::try_from(leaf).ok()?;
        let mut names: Vec<String> = shown.valid_dns_names().map(str::to_owned).collect();
        names.extend(addresses(&parsed));
        Some(Self { names, from, until, self_signed: shown.issuer() == shown.subject() })
    }

    /// Whether it holds at a time, in seconds since 1970.
    pub(super) const fn holds(&self, at: u64) -> bool {
        self.from <= at && at <= self.until
    }

    /// As the status has it, at a time in seconds since 1970.
    pub(super) fn status(self, file: &Path, now: u64) -> CertificateStatus {
        let Self { mut names, from, until, self_signed } = self;
        let more_names = names.len().saturating_sub(NAMES) as u64;
        names.truncate(NAMES);
        let end = UNIX_EPOCH + Duration::from_secs(until.min(LAST));
        let from_now = |then: u64| then as f64 - now as f64;
        CertificateStatus {
            names,
            more_names,
            file: file.display().to_string(),
            valid_until: humantime::format_rfc3339_seconds(end).to_string(),
            expires_in_seconds: from_now(until),
            valid_in_seconds: (from > now).then(|| from_now(from)),
            self_signed,
        }
    }
}

/// Why whoever knows no authority refuses it, so many seconds after 1970: dates are looked at before the issuer.
fn refusal(parsed: &ParsedCertificate<'_>, at: u64) -> Option<CertificateError> {
    let seen = verify_server_cert_signed_by_trust_anchor(
        parsed,
        &RootCertStore::empty(),
        &[],
        UnixTime::since_unix_epoch(Duration::from_secs(at)),
        rustls::crypto::ring::default_provider().signature_verification_algorithms.all,
    );
    match seen {
        Err(rustls::Error::InvalidCertificate(why)) => Some(why),
        _ => None,
    }
}

/// The addresses for which it is. The library tells them only as text, where an address does not fit.
fn addresses(parsed: &ParsedCertificate<'_>) -> Vec<String> {
    let nobody = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let presented = match verify_server_name(parsed, &nobody) {
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) => presented,
        _ => return Vec::new(),
    };
    let address = |text: &String| {
        let inside = text.strip_prefix("IpAddress(")?.strip_suffix(')')?;
        // the text leaves out zeros at the end, and may have two gaps: what is read is asked for again
        let fits = |ip: &IpAddr| verify_server_name(parsed, &ServerName::from(*ip)).is_ok();
        let read = inside.parse::<IpAddr>().ok().filter(fits);
        Some(read.map_or_else(|| inside.to_owned(), |ip| ip.to_string()))
    };
    presented.iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair};

    /// 2026-01-01.
    const FROM: u64 = 1_767_225_600;
    const DAY: u64 = 86_400;

    /// Valid for 90 days from then on.
    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        params
    }

    fn self_signed(names: &[&str]) -> CertificateFacts {
        let made = params(names).self_signed(&KeyPair::generate().unwrap()).unwrap();
        CertificateFacts::of(made.der()).unwrap()
    }

    #[test]
    fn names_and_dates_are_read() {
        let facts = self_signed(&["relay.example", "192.0.2.1", "*.b.example", "2001:db8::1"]);
        assert_eq!(facts.names, ["relay.example", "*.b.example", "192.0.2.1", "2001:db8::1"]);
        assert_eq!((facts.from, facts.until), (FROM, FROM + 90 * DAY));
        let holds = [FROM - 1, FROM, facts.until, facts.until + 1].map(|at| facts.holds(at));
        assert_eq!(holds, [false, true, true, false]);
        assert!(CertificateFacts::of(&CertificateDer::from(b"none".to_vec())).is_none());
    }

    #[test]
    fn one_that_an_authority_has_signed_is_not_self_signed() {
        let (key, mut authority) = (KeyPair::generate().unwrap(), params(&[]));
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        let issuer = Issuer::new(authority, KeyPair::generate().unwrap());
        let made = params(&["relay.example"]).signed_by(&key, &issuer).unwrap();
        assert!(!CertificateFacts::of(made.der()).unwrap().self_signed);
        assert!(self_signed(&["relay.example"]).self_signed);
    }

    #[test]
    fn the_status_says_what_is_left_and_names_a_few() {
        let file = Path::new("/c.pem");
        let names = ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"];
        let early = self_signed(&names).status(file, FROM - 60);
        assert_eq!((early.names.len(), early.more_names), (NAMES, 1));
        assert_eq!(early.valid_in_seconds, Some(60.0));
        let late = self_signed(&["a.example"]).status(file, FROM + 91 * DAY);
        assert_eq!((late.valid_in_seconds, late.expires_in_seconds), (None, -(DAY as f64)));
        assert_eq!((late.valid_until.as_str(), late.more_names), ("2026-04-01T00:00:00Z", 0));
        assert_eq!(late.file, "/c.pem");
    }
}
