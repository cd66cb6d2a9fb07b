//! The report as text: what matters first, one line for each thing that is fine.

use super::apply::{self, KEPT_IN};
use super::tunnel;
use super::{DAEMON, DoctorReport, Finding, ProxyReport, Severity};
use crate::print::count;
use std::io::{self, Write};

/// How text is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// With colours.
    pub(super) colour: bool,
    /// Lines are broken at so many columns; absent: never, as for a file.
    pub(super) columns: Option<usize>,
    /// Whether commands that need root begin with `sudo`.
    pub(super) sudo: bool,
}

const INDENT: &str = "         ";

/// Writes the report.
pub(super) fn text(report: &DoctorReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let (fine, others): (Vec<_>, Vec<_>) =
        report.findings.iter().partition(|finding| finding.severity == Severity::Ok);
    // who asks about a relay wants that answer, and of this machine what does not work
    let asked = report.relay.is_some() || report.tunnel.is_some();
    let told = others.iter().filter(|finding| !asked || finding.severity == Severity::Problem);
    for finding in told {
        let label = format!("{:<9}", finding.severity);
        lines(&paint(&label, finding.severity, style), &finding.what, style, out)?;
        lines(INDENT, &finding.why, style, out)?;
        if let Some(mend) = &finding.mend {
            let command = if style.sudo { with_sudo(mend) } else { mend.clone() };
            writeln!(out, "{INDENT}$ {command}")?; // never broken: it is to be copied
        }
        writeln!(out)?;
    }
    for finding in fine.iter().filter(|_| !asked) {
        lines(&paint("ok       ", Severity::Ok, style), &finding.what, style, out)?;
    }
    if let Some(relay) = &report.relay {
        writeln!(out)?;
        relay_text(relay, style, out)?;
    }
    if let Some(measured) = &report.tunnel {
        writeln!(out)?;
        let severity = if measured.error.is_none() { Severity::Ok } else { Severity::Problem };
        let head = format!("{}, through its tunnel", measured.peer);
        lines(&paint("relay    ", severity, style), &head, style, out)?;
        for (name, value) in tunnel::rows(measured) {
            lines(&format!("{INDENT}{name:<18}"), &value, style, out)?;
        }
    }
    if !report.changes.is_empty() {
        writeln!(out)?;
        changes(report, out)?;
    }
    writeln!(out)?;
    summary(report, &others, out)
}

/// A command of root's for another user. The shell itself needs root where it writes files or goes on to a second command.
fn with_sudo(mend: &str) -> String {
    // some have it: whose user is meant, or that root sees more
    if mend.starts_with("sudo ") {
        return mend.to_owned();
    }
    let (command, comment) = mend.split_at(mend.find(" # ").unwrap_or(mend.len()));
    match command.contains(['>', '|', ';']) || command.contains("&&") {
        true => format!("sudo sh -c '{}'{comment}", command.replace('\'', "'\\''")),
        false => format!("sudo {command}{comment}"),
    }
}

fn summary(report: &DoctorReport, others: &[&Finding], out: &mut dyn Write) -> io::Result<()> {
    let number = |severity| others.iter().filter(|finding| finding.severity == severity).count();
    let found = |severity, noun| count(number(severity) as u64, noun);
    let verdict = if report.fine {
        "Passed"
    } else if number(Severity::Problem) > 0 {
        "Something does not work"
    } else if named_failed(report) {
        "What was named with --with failed"
    } else if others.iter().any(|finding| finding.id == DAEMON) {
        "The daemon was not asked"
    } else {
        "Everything works, not at full speed"
    };
    writeln!(
        out,
        "{verdict}: {}, {}, {}; {} checks passed.",
        found(Severity::Problem, "problem"),
        found(Severity::Warning, "warning"),
        found(Severity::Note, "note"),
        report.findings.len() - others.len()
    )?;
    let asked = report.relay.is_some() || report.tunnel.is_some();
    writeln!(out, "{}", missing(others, !report.changes.is_empty(), asked))
}

fn named_failed(report: &DoctorReport) -> bool {
    let tunnel = report.tunnel.as_ref().is_some_and(|tunnel| tunnel.error.is_some());
    tunnel || report.relay.as_ref().is_some_and(|relay| !relay.fine())
}

/// What is missing for full speed, in one line: what `--apply` mends, and what a command above does. Notes cost no
/// speed by themselves. `asked` of a relay: what only costs speed is not above.
fn missing(others: &[&Finding], applied: bool, asked: bool) -> String {
    let costs = |finding: &&&Finding| finding.severity >= Severity::Warning && finding.id != DAEMON;
    let slow: Vec<_> = others.iter().filter(costs).collect();
    let settings: usize = slow.iter().map(|finding| finding.settings.len()).sum();
    let mut by_hand = 0;
    let mut above = Vec::new();
    for finding in slow.iter().filter(|finding| finding.settings.is_empty()) {
        by_hand += 1;
        if !asked || finding.severity == Severity::Problem {
            // what it is about
            let name = finding.what.split([':', ',', '(']).next().unwrap_or_default();
            above.push(name.trim());
        }
    }
    let optional: usize =
        others.iter().map(|finding| finding.settings.len()).sum::<usize>() - settings;
    let are = |n: usize| if n == 1 { "is" } else { "are" };
    let total = settings + by_hand;
    if total == 0 {
        let more = match optional {
            0 => String::new(),
            n => format!(
                "; `sudo ekiden doctor --apply` writes {} that may help",
                count(n as u64, "setting")
            ),
        };
        return format!("Nothing is missing for full speed{more}.");
    }
    let mut parts = Vec::new();
    if settings > 0 {
        parts.push(match applied {
            // why is said above
            true => format!("{settings} could not be written"),
            false => format!("`sudo ekiden doctor --apply` mends {settings}"),
        });
    }
    if !above.is_empty() {
        let n = above.len();
        let names = above.join(", ");
        parts.push(format!("{n} {} mended by what is said above ({names})", are(n)));
    }
    if by_hand > above.len() {
        parts.push(format!("`ekiden doctor` alone says how to mend {}", by_hand - above.len()));
    }
    format!(
        "{} {} missing for full speed: {}.",
        count(total as u64, "setting"),
        are(total),
        parts.join("; ")
    )
}

fn changes(report: &DoctorReport, out: &mut dyn Write) -> io::Result<()> {
    let (kept, changed): (Vec<_>, Vec<_>) =
        report.changes.iter().partition(|change| change.name == KEPT_IN);
    for change in &changed {
        let before = change.before.as_deref().unwrap_or("not there");
        match &change.refused {
            None => {
                writeln!(out, "changed  {} from {before} to {}", change.name, change.asked)?;
            }
            Some(why) => {
                writeln!(out, "refused  {} stays {before}: {why}", change.name)?;
            }
        }
    }
    if changed.iter().any(|change| !apply::is_setting(change) && change.refused.is_none()) {
        writeln!(
            out,
            "\nA route returns to its old setting at the next start, or when its network is set up again. The \
             program that sets it up can set rto_min, too."
        )?;
    }
    if let Some(file) = kept.first() {
        return match &file.refused {
            None => writeln!(
                out,
                "\nkept     {KEPT_IN} has {} for every start",
                file.after.as_deref().unwrap_or("nothing")
            ),
            Some(why) => writeln!(out, "\nrefused  {KEPT_IN} is not written: {why}"),
        };
    }
    if changed.iter().any(|change| apply::is_setting(change)) {
        writeln!(
            out,
            "\nThe changes last until the next reboot. To keep them, add `--persist`, or write \
             {KEPT_IN}:\n"
        )?;
        for line in apply::kept("", &report.changes).lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

fn relay_text(relay: &ProxyReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let severity = if relay.fine() { Severity::Ok } else { Severity::Problem };
    let address = relay.address.as_deref().unwrap_or("no address");
    let head = format!("{} ({address})", relay.relay);
    lines(&paint("relay    ", severity, style), &head, style, out)?;
    let mut row =
        |name: &str, value: &str| lines(&format!("{INDENT}{name:<18}"), value, style, out);
    row("handshakes", &format!("{} of {}", relay.succeeded, relay.handshakes))?;
    if let (Some(min), Some(median)) = (relay.min_rtt_us, relay.median_rtt_us) {
        let times = format!("{} smallest, {} median", millis(min), millis(median));
        row("round-trip time", &times)?;
    }
    if let Some(loss) = relay.handshake_loss {
        let text = format!(
            "{:.0} % ({} of the handshakes' packets were sent again)",
            loss * 100.0,
            relay.syn_retransmissions
        );
        row("handshake loss", &text)?;
    }
    if let (Some(mss), Some(mtu)) = (relay.mss, relay.path_mtu) {
        row("segment", &format!("{mss} B of payload, path MTU {mtu} B"))?;
    }
    if relay.succeeded > 0 {
        let socks = if relay.socks5 == Some(true) { "SOCKS5" } else { "no SOCKS5" };
        let http =
            relay.http.as_ref().map_or("no HTTP".into(), |line| format!("HTTP (\"{line}\")"));
        row("speaks", &format!("{socks}, {http}"))?;
    }
    if let Some(error) = &relay.error {
        row("error", error)?;
    }
    row("rate", "not measured by handshakes; `ekiden doctor --with PEER` measures a tunnel")
}

fn millis(us: u32) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// `text` after `first`, broken between words; lines that follow are indented as far.
fn lines(first: &str, text: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(columns) = style.columns else { return writeln!(out, "{first}{text}") };
    let indent = visible(first);
    let room = columns.saturating_sub(indent).max(20);
    let mut line = String::new();
    let mut label = first.to_owned();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            writeln!(out, "{label}{line}")?;
            label = " ".repeat(indent);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{label}{line}")
}

fn paint(label: &str, severity: Severity, style: Style) -> String {
    if !style.colour {
        return label.into();
    }
    let code = match severity {
        Severity::Ok => 32,
        Severity::Note => 36,
        Severity::Warning => 33,
        Severity::Problem => 31,
    };
    format!("\x1b[{code}m{label}\x1b[0m")
}

/// Columns that text takes, without colours.
fn visible(text: &str) -> usize {
    let mut inside = false;
    text.chars()
        .filter(|c| {
            let counted = !inside && *c != '\x1b';
            inside = if inside { *c != 'm' } else { *c == '\x1b' };
            counted
        })
        .count()
}
