//! The certificate that clients see.

use crate::print::{clean, seconds};
use ekiden_proxy::observe::status::{CertificateStatus, Status};

/// So long before its end one in files has a warning: its operator alone renews it.
const SOON: f64 = 14.0 * 86_400.0;

/// A line, and another where somebody has to do something. One that is ordered has its own already.
pub(crate) fn lines(status: &Status) -> String {
    if status.acme.is_some() {
        return String::new();
    }
    status.certificates.iter().map(render).collect()
}

fn render(shown: &CertificateStatus) -> String {
    let names: Vec<_> = shown.names.iter().map(|name| clean(name)).collect();
    let names = match shown.more_names {
        _ if names.is_empty() => "no name".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    };
    let left = shown.expires_in_seconds;
    let end = match left {
        left if left > 0.0 => format!("ends in {}", seconds(left)),
        left => format!("ended {} ago", seconds(-left)),
    };
    let by_itself = if shown.self_signed { "self-signed, " } else { "" };
    let (until, file) = (clean(&shown.valid_until), clean(&shown.file));
    let line = format!("certificate for {names}: valid until {until}, {end}; {by_itself}{file}\n");
    let warning = match shown.valid_in_seconds {
        Some(wait) => {
            let wait = seconds(wait);
            format!("it is valid in {wait} only: look at this machine's clock, and at the file")
        }
        None if left <= 0.0 => "clients refuse it: replace its files, which are read again".into(),
        None if left < SOON => "it ends soon: replace its files, which are read again".into(),
        None => return line,
    };
    format!("{line}  warning: {warning}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::AcmeStatus;

    fn shown(names: &[&str], days: f64) -> CertificateStatus {
        CertificateStatus {
            names: names.iter().map(ToString::to_string).collect(),
            file: "/etc/ekiden/certificate.pem".to_owned(),
            valid_until: "2027-03-01T00:00:00Z".to_owned(),
            expires_in_seconds: days * 86_400.0,
            ..CertificateStatus::default()
        }
    }

    #[test]
    fn says_for_whom_it_is_until_when_and_what_is_wrong() {
        let two = ["relay.example", "localhost"];
        let certificates = vec![
            CertificateStatus { self_signed: true, ..shown(&two, 62.0) },
            CertificateStatus { more_names: 3, ..shown(&two, 14.0) },
            shown(&two[..1], 13.5),
            shown(&two[..1], -1.0),
            CertificateStatus { valid_in_seconds: Some(7_200.0), ..shown(&[], 90.0) },
        ];
        let mut status = Status { acme: None, certificates, ..crate::commands::sample() };
        insta::assert_snapshot!(lines(&status));
        assert!(render_of(&status).contains(&lines(&status)));
        status.acme = Some(AcmeStatus::default());
        assert_eq!(lines(&status), "");
    }

    fn render_of(status: &Status) -> String {
        super::super::render(status, None)
    }
}
