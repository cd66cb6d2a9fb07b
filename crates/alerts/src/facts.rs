//! What is wrong with a relay, by its status.

use crate::SharedUse;
use crate::folders::Disk;
use crate::kind::AlertKind;
use ekiden_config::Alerts;
use ekiden_model::alerts::{Fact, Key, Seen};
use ekiden_model::units::Share;
use ekiden_proxy::observe::status::{AccountStatus, AcmeStatus, Status, TunnelStatus};
use std::collections::BTreeSet;

/// An alert about a quota resolves when the account has used so much less than the limit.
const QUOTA_BAND: u64 = 5;

/// Orders that failed in a row before that is an alert: one may fail by chance.
const FAILED_ORDERS: u32 = 2;

/// What is looked at besides the status.
#[derive(Debug, Default)]
pub(crate) struct Around {
    /// The disks of folders in use.
    pub(crate) disks: Vec<Disk>,
    /// What could not be saved, and why.
    pub(crate) unsaved: Vec<(&'static str, String)>,
    /// The file of a certificate that nobody orders, where it ends soon, and in words when.
    pub(crate) ending: Option<(String, String)>,
    /// What is used of quotas that several relays share.
    pub(crate) shared: Vec<SharedUse>,
}

/// Remembers which peers have been there.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    connected: BTreeSet<String>,
}

impl Facts {
    /// A peer's tunnel was down when the program ended: it had been there.
    pub(crate) fn on_restored(&mut self, key: &Key<AlertKind>) {
        if key.alert == AlertKind::LineDown {
            self.connected.insert(key.subject.clone());
        }
    }

    /// Everything that is not well.
    pub(crate) fn look(
        &mut self,
        status: &Status,
        around: &Around,
        limits: &Alerts,
    ) -> Vec<Fact<AlertKind>> {
        let mut facts = Vec::new();
        let mut find = |alert, subject: &str, seen, text: String| {
            facts.push(Fact { key: Key { subject: subject.to_owned(), alert }, seen, text });
        };
        self.connected.retain(|peer| status.tunnels.iter().any(|line| line.peer == *peer));
        for line in &status.tunnels {
            if line.up {
                self.connected.insert(line.peer.clone());
            } else if line.joined || self.connected.contains(&line.peer) {
                // of one that was invited and has not come yet nobody expects anything
                find(AlertKind::LineDown, &line.peer, Seen::Bad, line_down(line));
            }
        }
        // of a quota that several relays share, this one knows its own part alone
        let shared = status.accounts.as_ref().is_some_and(|of| of.database != "sqlite");
        for account in status.sharing.iter().flat_map(|sharing| &sharing.accounts) {
            let own = account.quota.zip(account.quota_left).filter(|_| !shared);
            let used = own.map(|(quota, left)| (quota.saturating_sub(left), quota));
            if let Some((seen, text)) = quota_low(&account.name, used, limits.quota) {
                find(AlertKind::QuotaLow, &account.name, seen, text);
            }
            if matches!(account.state.as_str(), "throttle" | "cut") {
                find(AlertKind::QuotaUsedUp, &account.name, Seen::Bad, used_up(account));
            }
        }
        for SharedUse { account, used, quota } in &around.shared {
            if let Some((seen, text)) = quota_low(account, Some((*used, *quota)), limits.quota) {
                find(AlertKind::QuotaLow, account, seen, text);
            }
        }
        if let Some((alert, text)) = status.acme.as_ref().and_then(|acme| ordered(acme, limits)) {
            let names = status.acme.as_ref().map(|acme| acme.names.join(", "));
            find(alert, &names.unwrap_or_default(), Seen::Bad, text);
        }
        if let Some((file, text)) = &around.ending {
            find(AlertKind::CertificateEnding, file, Seen::Bad, text.clone());
        }
        if let Some(why) = status.accounts.as_ref().and_then(|accounts| accounts.away.as_ref()) {
            let text = format!("the accounts' database is unreachable: {why}");
            find(AlertKind::DatabaseAway, "accounts", Seen::Bad, text);
        }
        for disk in &around.disks {
            let (folder, limit) = (disk.folder.display().to_string(), limits.disk_free.as_u64());
            let seen = match disk.free {
                free if free < limit => Seen::Bad,
                free if free < limit.saturating_add(limit / 4) => Seen::Between,
                _ => continue,
            };
            let text = format!("the disk of {folder} has {} free", size(disk.free));
            find(AlertKind::DiskFull, &folder, seen, text);
        }
        let usage = status.accounts.as_ref().and_then(|accounts| accounts.unwritten.as_ref());
        let unsaved = around.unsaved.iter().map(|(what, why)| (*what, why));
        for (what, why) in unsaved.chain(usage.map(|why| ("usage", why))) {
            let text = format!("{what} cannot be saved: {why}");
            find(AlertKind::NotSaved, what, Seen::Bad, text);
        }
        facts
    }
}

fn line_down(line: &TunnelStatus) -> String {
    match &line.last_error {
        Some(error) => format!("no tunnel to {}: {error}", line.peer),
        None => format!("no tunnel to {}", line.peer),
    }
}

/// Whether most of a quota is used: bytes, and of how many.
fn quota_low(account: &str, used: Option<(u64, u64)>, limit: Share) -> Option<(Seen, String)> {
    let (used, quota) = used?;
    let bad = limit.of(quota);
    let well = bad.saturating_sub(quota / 100 * QUOTA_BAND);
    let seen = match used {
        _ if quota == 0 => return None,
        used if used >= bad => Seen::Bad,
        used if used >= well => Seen::Between,
        _ => return None,
    };
    let percent = used.saturating_mul(100) / quota;
    let text =
        format!("{account} has used {percent} % of its quota: {} of {}", size(used), size(quota));
    Some((seen, text))
}

fn used_up(account: &AccountStatus) -> String {
    let since = match account.state.as_str() {
        "cut" => "it cannot connect",
        _ => "it is slowed down",
    };
    let quota = account.quota.map_or_else(String::new, |quota| format!(" of {}", size(quota)));
    format!("{} has used up its quota{quota}: {since} until the next period", account.name)
}

/// What is wrong with an ordered certificate.
fn ordered(acme: &AcmeStatus, limits: &Alerts) -> Option<(AlertKind, String)> {
    let names = acme.names.join(", ");
    let left = acme.expires_in_seconds;
    let when = match left {
        Some(left) if left > 0.0 => format!("ends in {}", days(left)),
        Some(_) => "has ended".to_owned(),
        None => "does not exist yet".to_owned(),
    };
    if acme.failures >= FAILED_ORDERS {
        let why = acme.last_failure.as_deref().unwrap_or("for an unknown reason");
        let text = format!(
            "the certificate for {names} {when}, and {} orders in a row failed: {why}",
            acme.failures
        );
        return Some((AlertKind::CertificateNotRenewed, text));
    }
    if let Some(late) = acme.overdue() {
        let text = format!(
            "the certificate for {names} {when}, and an order is overdue by {}",
            days(late)
        );
        return Some((AlertKind::CertificateNotRenewed, text));
    }
    // a short-lived one is always near its end: what matters is that it is renewed before
    let left = left.filter(|left| *left < limits.certificate.as_secs_f64())?;
    let renewed = acme.next_order_in_seconds.is_some_and(|next| next < left);
    (!renewed && acme.next_order_in_seconds.is_some())
        .then(|| (AlertKind::CertificateEnding, format!("the certificate for {names} {when}")))
}

/// Seconds in the largest unit that fits.
pub(crate) fn days(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        172_800.. => format!("{} days", whole / 86_400),
        7_200.. => format!("{} h", whole / 3_600),
        _ => format!("{} min", whole / 60),
    }
}

/// Bytes by three digits, as providers count them.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::{Bytes, Span};
    use ekiden_proxy::observe::status::{AccountsStatus, SharingStatus};

    fn status() -> Status {
        let mut status: Status =
            serde_json::from_str(include_str!("../../ekiden/tests/status.json")).unwrap();
        (status.tunnels, status.sharing, status.accounts) = (Vec::new(), None, None);
        status.acme = None;
        status
    }

    /// What is found, as `kind subject`, with a `?` where it is neither wrong nor well.
    fn found(facts: &mut Facts, status: &Status, around: &Around) -> Vec<String> {
        let found = facts.look(status, around, &Alerts::default());
        let line = |fact: Fact<AlertKind>| {
            let between = if fact.seen == Seen::Between { "?" } else { "" };
            assert!(!fact.text.is_empty());
            format!("{} {}{between}", fact.key.alert.word(), fact.key.subject)
        };
        found.into_iter().map(line).collect()
    }

    fn look(status: &Status) -> Vec<String> {
        found(&mut Facts::default(), status, &Around::default())
    }

    #[test]
    fn lines_that_are_expected_are_missed() {
        let (mut facts, mut status) = (Facts::default(), status());
        let line = |peer: &str, joined| TunnelStatus {
            peer: peer.to_owned(),
            joined,
            ..TunnelStatus::default()
        };
        status.tunnels = vec![line("ship", false), line("shore", true)];
        let mut look = |status: &Status| found(&mut facts, status, &Around::default());
        // an invitation that nobody has taken is no fault
        assert_eq!(look(&status), ["line-down shore"]);
        status.tunnels.iter_mut().for_each(|line| line.up = true);
        assert_eq!(look(&status), [""; 0]);
        status.tunnels.iter_mut().for_each(|line| line.up = false);
        assert_eq!(look(&status), ["line-down ship", "line-down shore"]);
        // one that was revoked is a stranger again
        let tunnels = std::mem::take(&mut status.tunnels);
        assert_eq!(look(&status), [""; 0]);
        status.tunnels = tunnels;
        assert_eq!(look(&status), ["line-down shore"]);
        let ship = Key { subject: "ship".to_owned(), alert: AlertKind::LineDown };
        facts.on_restored(&ship);
        assert_eq!(found(&mut facts, &status, &Around::default()).len(), 2);
    }

    #[test]
    fn quotas_have_two_limits_and_a_band() {
        let mut status = status();
        let account = |name: &str, left: u64, state: &str| AccountStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            quota: Some(1_000),
            quota_left: Some(left),
            ..AccountStatus::default()
        };
        let accounts = vec![
            account("a", 251, "fine"),
            account("b", 250, "fine"),
            account("c", 201, "fine"),
            account("d", 200, "fine"),
            account("e", 0, "throttle"),
            AccountStatus { quota: None, ..account("f", 0, "fine") },
            AccountStatus { quota: Some(0), ..account("g", 0, "fine") },
        ];
        status.sharing = Some(SharingStatus { accounts, ..SharingStatus::default() });
        let low = ["quota-low b?", "quota-low c?", "quota-low d"];
        assert_eq!(look(&status)[..3], low);
        assert_eq!(look(&status)[3..], ["quota-low e", "quota-used-up e"]);
        // a slice of a shared quota is not the quota
        let database = "postgresql".to_owned();
        status.accounts = Some(AccountsStatus { database, ..AccountsStatus::default() });
        assert_eq!(look(&status), ["quota-used-up e"]);
        let used = |account: &str, used| SharedUse { account: account.into(), used, quota: 1_000 };
        let shared = vec![used("a", 100), used("d", 900)];
        let around = Around { shared, ..Around::default() };
        let all = found(&mut Facts::default(), &status, &around);
        assert_eq!(all, ["quota-used-up e", "quota-low d"]);
        let text = Facts::default().look(&status, &Around::default(), &Alerts::default());
        assert!(text[0].text.contains("slowed down until the next period"), "{text:?}");
    }

    #[test]
    fn certificates_that_are_renewed_in_time_are_none_of_it() {
        let day = 86_400.0;
        let kind = |left: Option<f64>, next: Option<f64>, failures| {
            let acme = AcmeStatus {
                names: vec!["relay.example".to_owned()],
                expires_in_seconds: left,
                next_order_in_seconds: next,
                failures,
                ..AcmeStatus::default()
            };
            ordered(&acme, &Alerts::default()).map(|(kind, _)| kind.word())
        };
        assert_eq!(kind(Some(60.0 * day), Some(30.0 * day), 0), None);
        assert_eq!(kind(Some(5.0 * day), Some(3.0 * day), 0), None, "lives for six days");
        assert_eq!(kind(Some(5.0 * day), Some(30.0 * day), 0), Some("certificate-ending"));
        assert_eq!(kind(Some(5.0 * day), None, 0), None, "an order is under way");
        assert_eq!(kind(None, None, 0), None);
        assert_eq!(kind(Some(60.0 * day), Some(0.1 * day), 1), None);
        assert_eq!(kind(None, Some(0.1 * day), 2), Some("certificate-not-renewed"));
        // an order that is due begins at once, or within minutes where the clock was set
        assert_eq!(kind(Some(29.0 * day), Some(-600.0), 0), None);
        assert_eq!(kind(Some(29.0 * day), Some(-3_600.0), 0), Some("certificate-not-renewed"));
        assert_eq!(kind(None, Some(-3_600.0), 0), Some("certificate-not-renewed"));
    }

    #[test]
    fn the_disk_the_database_and_what_is_not_saved() {
        let mut status = status();
        let away = Some("connection refused".to_owned());
        let unwritten = Some("no space".to_owned());
        status.accounts = Some(AccountsStatus { away, unwritten, ..AccountsStatus::default() });
        let mib = Bytes::mib(1).as_u64();
        let disk = |folder: &str, free| Disk { folder: folder.into(), free: free * mib };
        let around = Around {
            disks: vec![disk("/a", 63), disk("/b", 64), disk("/c", 80)],
            unsaved: vec![("history", "no space".to_owned())],
            ending: Some(("/c.pem".to_owned(), "ends".to_owned())),
            shared: Vec::new(),
        };
        let all = found(&mut Facts::default(), &status, &around);
        let expected = [
            "certificate-ending /c.pem",
            "database-away accounts",
            "disk-full /a",
            "disk-full /b?",
            "not-saved history",
            "not-saved usage",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(
            [0, 999, 1_000, 16_200_000_000].map(size),
            ["0 B", "999 B", "1.00 kB", "16.2 GB"]
        );
        assert_eq!(size(999_950), "1.00 MB");
        let times = [59.0, 7_200.0, 200_000.0, -5.0].map(days);
        assert_eq!(times, ["0 min", "2 h", "2 days", "0 min"]);
        assert_eq!(days(Span::from_secs(1_209_600).as_secs_f64()), "14 days");
    }
}
