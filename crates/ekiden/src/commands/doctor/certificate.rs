//! The certificate that a running daemon orders, or that the configuration names in files.

use super::findings::finding;
use super::{Finding, Severity};
use crate::print::seconds;
use ekiden_proxy::CertificateFiles;
use ekiden_proxy::observe::status::Status;
use ekiden_proxy::settings::Tls;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A certificate that ends sooner than this, and is not renewed, needs somebody: Let's Encrypt used
/// to write mails 20 days before.
const SOON: f64 = 20.0 * 86_400.0;

pub(super) fn certificate(status: &Status, found: &mut Vec<Finding>) {
    let Some(acme) = &status.acme else { return };
    let names = acme.names.join(", ");
    let left = acme.expires_in_seconds;
    let holds = match left {
        Some(left) if left > 0.0 => {
            format!("the certificate for {names} ends in {}", seconds(left))
        }
        Some(left) => format!("the certificate for {names} ended {} ago", seconds(-left)),
        None => format!("there is no certificate for {names} yet"),
    };
    let Some(why) = &acme.last_failure else {
        if let Some(late) = acme.overdue() {
            let what = format!("{holds}, and an order is overdue by {}", seconds(late));
            let why =
                "nothing orders any more, which is a fault of ekiden: `systemctl restart ekiden`";
            found.push(finding("certificate", Severity::Problem, what, why));
        } else if left.is_some_and(|left| left > 0.0) {
            found.push(finding("certificate", Severity::Ok, holds, "it is renewed before"));
        }
        return;
    };
    let severity = match left {
        Some(left) if left > SOON => Severity::Warning,
        _ => Severity::Problem,
    };
    let what = format!("{holds}, and the last {} orders failed: {why}", acme.failures);
    let wait = acme.next_order_in_seconds.unwrap_or_default().max(0.0);
    let why = format!(
        "clients that use TLS to this relay are refused without a valid certificate; the next order is in {}, and `systemctl reload ekiden` repeats it sooner",
        seconds(wait)
    );
    found.push(finding("certificate", severity, what, why.as_str()));
}

/// A certificate in files: nobody renews it but its operator. What this user cannot read is not judged.
pub(super) fn in_files(tls: &Tls, now: SystemTime, found: &mut Vec<Finding>) {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return };
    let is_closed = |file: &Path| {
        File::open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    if is_closed(certificate) || is_closed(key) {
        return;
    }
    let shown = certificate.display();
    let (severity, what) = match CertificateFiles::read(certificate, key) {
        Err(why) => (Severity::Problem, why),
        Ok(files) if !files.holds(now) => {
            (Severity::Problem, format!("the certificate in {shown} has ended, or not begun"))
        }
        Ok(files) if !files.holds(now + Duration::from_secs_f64(SOON)) => {
            (Severity::Warning, format!("the certificate in {shown} ends within {}", seconds(SOON)))
        }
        Ok(_) => return,
    };
    let why = "clients that use TLS to this relay are refused without a valid certificate; replace the files, which the daemon reads again, or run `ekiden init half-way` again for a self-signed one";
    found.push(finding("certificate", severity, what, why));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_a_problem_once_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["c", "k"].map(|name| folder.path().join(name));
        let secret = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["relay.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        std::fs::write(&certificate, params.self_signed(&secret).unwrap().pem()).unwrap();
        std::fs::write(&key, secret.serialize_pem()).unwrap();
        let tls = |key| Tls { certificate: Some(certificate.clone()), key: Some(key) };
        let severity = |tls: &Tls, days: u64| {
            let mut found = Vec::new();
            // from 2026-01-01 on
            let now = UNIX_EPOCH + Duration::from_secs(1_767_225_600 + days * 86_400);
            in_files(tls, now, &mut found);
            found.first().map(|finding| finding.severity)
        };
        for (days, expected) in
            [(1, None), (69, None), (71, Some(Severity::Warning)), (91, Some(Severity::Problem))]
        {
            assert_eq!(severity(&tls(key.clone()), days), expected, "{days}");
        }
        assert_eq!(severity(&tls(certificate.clone()), 1), Some(Severity::Problem));
        assert_eq!(severity(&tls("/none".into()), 1), Some(Severity::Problem));
        assert_eq!(severity(&Tls::default(), 1), None);
    }
    use crate::commands::sample;
    use ekiden_proxy::observe::status::AcmeStatus;
    use std::time::UNIX_EPOCH;

    #[test]
    fn failed_orders_are_a_problem_once_the_end_is_near() {
        let judged = |left: Option<f64>, failed: Option<&str>, next: Option<f64>| {
            let acme = AcmeStatus {
                names: vec!["relay.example".to_owned()],
                expires_in_seconds: left,
                next_order_in_seconds: next,
                failures: 2,
                last_failure: failed.map(str::to_owned),
                ..AcmeStatus::default()
            };
            let mut found = Vec::new();
            certificate(&Status { acme: Some(acme), ..sample() }, &mut found);
            found.first().map(|finding| finding.severity)
        };
        let day = 86_400.0;
        let severity = |left, failed| judged(left, failed, None);
        assert_eq!(severity(Some(60.0 * day), None), Some(Severity::Ok));
        assert_eq!(judged(Some(29.0 * day), None, Some(-600.0)), Some(Severity::Ok));
        assert_eq!(judged(Some(29.0 * day), None, Some(-3_600.0)), Some(Severity::Problem));
        assert_eq!(severity(None, None), None, "the first order is under way");
        assert_eq!(severity(Some(60.0 * day), Some("dns")), Some(Severity::Warning));
        assert_eq!(severity(Some(10.0 * day), Some("dns")), Some(Severity::Problem));
        assert_eq!(severity(None, Some("dns")), Some(Severity::Problem));
    }
}
