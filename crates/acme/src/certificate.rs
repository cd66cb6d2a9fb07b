//! What a certificate says: for which names, and when.

use ekiden_model::renewal::Validity;
use ekiden_model::units::{Span, Time};
use ekiden_proxy::CertificateFiles;
use instant_acme::CertificateIdentifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// A certificate that was issued.
#[derive(Debug, Clone)]
pub(crate) struct Issued {
    pub(crate) names: BTreeSet<String>,
    pub(crate) validity: Validity,
    /// By which the authority knows it (RFC 9773 §4.1).
    pub(crate) id: Option<CertificateIdentifier<'static>>,
}

impl Issued {
    /// From the first certificate of a PEM text that has its key, too; fails in words. What the listener could not use is
    /// refused, so that it is neither kept nor taken for a certificate at the next start.
    pub(crate) fn read(pem: &[u8]) -> Result<Self, String> {
        CertificateFiles::check(pem)?;
        let der = CertificateDer::from_pem_slice(pem)
            .map_err(|error| format!("it contains no certificate: {error}"))?;
        let (_, parsed) = parse_x509_certificate(&der)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let mut names = BTreeSet::new();
        if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
            for name in &alternative.value.general_names {
                if let GeneralName::DNSName(name) = name {
                    names.insert(name.to_ascii_lowercase());
                }
            }
        }
        let validity = parsed.validity();
        let at = |stamp: i64| seconds(u64::try_from(stamp).unwrap_or(0));
        let validity = Validity {
            from: at(validity.not_before.timestamp()),
            until: at(validity.not_after.timestamp()),
        };
        let id = CertificateIdentifier::try_from(&der).ok().map(CertificateIdentifier::into_owned);
        Ok(Self { names, validity, id })
    }

    /// Whether it is for these names and no others.
    pub(crate) fn is_for(&self, names: &[String]) -> bool {
        names.iter().map(|name| name.to_ascii_lowercase()).collect::<BTreeSet<_>>() == self.names
    }
}

/// That many seconds after 1970.
pub(crate) fn seconds(since: u64) -> Time {
    Time::ZERO + Span::from_secs(since)
}

/// The seconds since 1970 of a time.
pub(crate) fn stamp(time: Time) -> u64 {
    time.since(Time::ZERO).as_secs()
}

/// The calendar's time by this machine's clock.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::ZERO + Span::from(since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn names_and_dates_are_read() {
        let mut params =
            CertificateParams::new(vec!["A.example".to_owned(), "b.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let both = |key: &KeyPair| format!("{}{}", key.serialize_pem(), made.pem());
        let issued = Issued::read(both(&key).as_bytes()).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(issued.is_for(&names(&["b.example", "a.example"])));
        assert!(!issued.is_for(&names(&["a.example"])));
        assert!(!issued.is_for(&names(&["a.example", "b.example", "c.example"])));
        // 90 days from 2026-01-01
        assert_eq!(stamp(issued.validity.from), 1_767_225_600);
        assert_eq!(stamp(issued.validity.until), 1_767_225_600 + 90 * 86_400);
        assert!(Issued::read(b"half a file").unwrap_err().contains("contains no certificate"));
        let why = Issued::read(both(&KeyPair::generate().unwrap()).as_bytes()).unwrap_err();
        assert!(why.contains("the key, it does not match the certificate"), "{why}");
    }
}
