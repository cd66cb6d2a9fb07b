//! The page as HTML: one style sheet and, for the speed test, one script within it; nothing from elsewhere.

use super::speed::SCRIPT;
use super::words::Words;
use super::{LOG_IN, Page, Shown};
use crate::inbound::http::own::{Offered, PASSWORD};
use crate::observe::status::AccountStatus;
use crate::policy::accounts::AccountDetails;
use crate::wire::http::reply::reason;
use crate::wire::qr::QrPath;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use std::sync::OnceLock;

const STYLE: &str = include_str!("page.css");

/// Links of more bytes have no code: whoever asks chooses the host in them, and a larger code costs more. So many fit a
/// code of 37 modules a side.
const LONGEST_IN_CODE: usize = 106;

/// What browsers may do with the page: show it with its style sheet, run its script, and nothing else.
fn policy(forms: &str) -> String {
    static HASHES: OnceLock<[String; 2]> = OnceLock::new();
    let [style, script] = HASHES.get_or_init(|| {
        [STYLE, SCRIPT].map(|text| STANDARD.encode(ekiden_tunnel::trust::hash(text.as_bytes())))
    });
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
    )
}

/// A text as content or as an attribute in double quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A name that another chose: its direction does not spread to what stands beside it.
pub(super) fn name(text: &str) -> String {
    format!("<bdi>{}</bdi>", escaped(text))
}

/// Bytes in the units that quotas are sold in.
fn volume(bytes: u64) -> String {
    let (unit, size) = match bytes {
        0..1_000_000 => ("kB", 1e3),
        1_000_000..1_000_000_000 => ("MB", 1e6),
        1_000_000_000..1_000_000_000_000 => ("GB", 1e9),
        _ => ("TB", 1e12),
    };
    format!("{} {unit}", three_digits(bytes as f64 / size))
}

fn speed(bits_per_second: u64) -> String {
    match bits_per_second {
        0..1_000_000 => format!("{} kbit/s", three_digits(bits_per_second as f64 / 1e3)),
        _ => format!("{} Mbit/s", three_digits(bits_per_second as f64 / 1e6)),
    }
}

fn three_digits(x: f64) -> String {
    let decimals = match x {
        x if x < 0.005 => 0,
        x if x < 10.0 => 2,
        x if x < 100.0 => 1,
        _ => 0,
    };
    format!("{x:.decimals$}")
}

/// The head of an answer up to `Content-Length`, which is to follow, of the relay of this name. `more`: further fields,
/// whole lines. `forms` and `referrer`: where forms may be sent, and what they tell of this page.
pub(super) fn head(
    (relay, words): (&str, &Words),
    status: u16,
    more: &str,
    (forms, referrer): (&str, &str),
) -> String {
    format!(
        "HTTP/1.1 {status} {}\r\nVia: 1.1 {relay}\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Language: {}\r\nVary: Accept-Language\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: {referrer}\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: {}\r\n{more}Connection: close\r\n",
        reason(status),
        words.code,
        policy(forms),
    )
}

/// The document around its own part.
pub(super) fn frame(words: &Words, relay: &str, content: &str) -> String {
    let Words { code, title, .. } = words;
    format!(
        "<!doctype html><html lang=\"{code}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>{title} {}</title><style>{STYLE}</style></head><body><main><h1>{title} {}</h1>{content}</main></body></html>\n",
        escaped(relay),
        name(relay),
    )
}

impl Page {
    /// The head up to `Content-Length`, which is to follow. `more`: further fields, whole lines.
    pub(super) fn head(&self, status: u16, more: &str) -> String {
        head((&self.relay, self.words), status, more, ("'none'", "no-referrer"))
    }

    pub(super) fn body(&self) -> String {
        let mut page = String::new();
        self.account(&mut page);
        self.speed(&mut page);
        self.set_up(&mut page);
        frame(self.words, &self.relay, &page)
    }

    fn account(&self, page: &mut String) {
        let w = self.words;
        let _ = match &self.account {
            Shown::Account { name: account, status, details, may_log_in } => {
                let _ = write!(
                    page,
                    "<section aria-labelledby=\"a\"><h2 id=\"a\">{} {}</h2>",
                    w.account,
                    name(account)
                );
                volumes(w, status, details, page);
                facts(w, status, details, page);
                write!(page, "{}</section>", own_password(w, details, *may_log_in))
            }
            Shown::NoAccounts => write!(page, "<p>{}</p>", w.no_accounts),
            Shown::NotClaimed => write!(page, "<p>{}</p>", w.unknown),
            Shown::ByStrangeName { .. } => write!(page, "<p>{}</p>", escaped(w.strange_name)),
            Shown::Refused(why) => {
                write!(page, "<p class=\"warn\">{} {}</p>", w.refused, name(why))
            }
            Shown::Unknown { may_log_in: true } => {
                write!(page, "<p>{}</p><p><a href=\"{LOG_IN}\">{}</a></p>", w.unknown, w.log_in)
            }
            Shown::Unknown { may_log_in: false } => {
                write!(page, "<p>{}</p><p>{}</p>", w.unknown, escaped(w.no_log_in))
            }
        };
    }

    fn speed(&self, page: &mut String) {
        let w = self.words;
        // who pays must be known
        if !matches!(self.account, Shown::Account { .. } | Shown::NoAccounts | Shown::NotClaimed) {
            return;
        }
        let line = |what: &str, id: &str| {
            format!(
                "<tr><th scope=\"row\">{what}</th><td id=\"{id}-down\">–</td><td id=\"{id}-up\">–</td></tr>"
            )
        };
        let tunnel = self.tunnel.as_ref();
        let tunnel =
            tunnel.map(|peer| line(&format!("{} {}", w.speed_tunnel, name(peer)), "tunnel"));
        let _ = write!(
            page,
            "<section aria-labelledby=\"v\"><h2 id=\"v\">{}</h2><p>{}</p><noscript><p>{}</p></noscript>\
             <table><tr><td></td><th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr>{}{}</table>\
             <p><button id=\"measure\" type=\"button\" hidden data-running=\"{}\" data-done=\"{}\" data-failed=\"{}\">{}</button></p>\
             <p id=\"told\" role=\"status\"></p></section><script>{SCRIPT}</script>",
            w.speed,
            w.speed_cost,
            w.speed_no_script,
            w.down,
            w.up,
            line(w.speed_device, "speed"),
            tunnel.unwrap_or_default(),
            w.speed_running,
            w.speed_done,
            w.speed_failed,
            w.speed_begin,
        );
    }

    fn set_up(&self, page: &mut String) {
        let w = self.words;
        let _ = write!(page, "<section aria-labelledby=\"s\"><h2 id=\"s\">{}</h2>", w.set_up);
        let Some(Offered { proxy, tls }) = &self.offered else {
            let _ = write!(page, "<p class=\"warn\">{}</p></section>", escaped(w.no_proxy));
            return;
        };
        if self.script {
            let link = format!("{}://{proxy}/proxy.pac", if *tls { "https" } else { "http" });
            let link = escaped(&link);
            let _ =
                write!(page, "<p>{}:<br><a href=\"{link}\"><code>{link}</code></a></p>", w.script);
            if link.len() <= LONGEST_IN_CODE
                && let Some(code) = QrPath::new(&link)
            {
                let _ = write!(
                    page,
                    "<figure>{}<figcaption>{}</figcaption></figure>",
                    code.svg(&link),
                    w.scan
                );
            }
            page.push_str("<dl>");
            for (system, how) in w.systems {
                let _ = write!(page, "<dt>{system}</dt><dd>{how}</dd>");
            }
            page.push_str("</dl>");
        }
        let (host, port) = proxy.rsplit_once(':').unwrap_or((proxy, ""));
        let secured = if *tls { format!(", {}", w.secured) } else { String::new() };
        let _ = write!(
            page,
            "<p>{} <code>{}</code>, {} <code>{}</code>{secured}</p></section>",
            w.by_hand,
            escaped(host),
            w.port,
            escaped(port)
        );
    }
}

fn volumes(w: &Words, status: &AccountStatus, details: &AccountDetails, page: &mut String) {
    let _ = match status.quota.zip(status.quota_left) {
        Some((quota, left)) => {
            let used = quota.saturating_sub(left);
            let share = (used as f64 / quota.max(1) as f64 * 100.0).min(100.0);
            let _ = write!(
                page,
                "<p class=\"big\">{} <b>{}</b> {} {}</p><p>{} <b>{}</b></p>\
                 <svg class=\"{}\" viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
                 <rect class=\"all\" width=\"100\" height=\"4\"/><rect class=\"used\" width=\"{share:.1}\" height=\"4\"/></svg>",
                w.used,
                volume(used),
                w.of,
                volume(quota),
                w.left,
                volume(left),
                if left == 0 { "bar over" } else { "bar" },
            );
            match status.state.as_str() {
                "cut" => write!(page, "<p class=\"warn\">{}</p>", w.cut),
                "throttle" => write!(page, "<p class=\"warn\">{}</p>", w.throttled),
                _ => Ok(()),
            }
        }
        None => {
            let used = volume(status.bytes_down.saturating_add(status.bytes_up));
            write!(
                page,
                "<p class=\"big\">{} <b>{used}</b> {}</p><p>{}</p>",
                w.used, w.since_start, w.no_quota
            )
        }
    };
    for (what, when) in [(w.renews, &details.renews), (w.expires, &details.expires)] {
        if let Some(when) = when {
            let _ = write!(page, "<p>{what}: {}</p>", escaped(when));
        }
    }
}

fn facts(w: &Words, status: &AccountStatus, details: &AccountDetails, page: &mut String) {
    let rate = |now: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{} ({} {})", speed(now), w.limit, speed(limit)),
        None => speed(now),
    };
    let most = status.connections_limit.map_or_else(String::new, |n| format!(" ({} {n})", w.limit));
    let _ = write!(
        page,
        "<h3>{}</h3><dl><dt>{}</dt><dd>{}</dd><dt>{}</dt><dd>{}</dd><dt>{}</dt><dd>{}{most}</dd></dl>",
        w.now,
        w.down,
        rate(status.rate_down, status.limit_down),
        w.up,
        rate(status.rate_up, status.limit_up),
        w.connections,
        status.connections,
    );
    // an account of the configuration has none
    if details.devices.is_empty() {
        return;
    }
    let _ = write!(page, "<h3>{}</h3><ul>", w.devices);
    for (device, identity) in &details.devices {
        let _ = match device == identity {
            true => write!(page, "<li>{}</li>", name(device)),
            false => write!(page, "<li>{} <small>{}</small></li>", name(device), name(identity)),
        };
    }
    page.push_str("</ul>");
}

/// How an account's user gets another password.
fn own_password(w: &Words, details: &AccountDetails, may_log_in: bool) -> String {
    match (details.users.is_empty(), may_log_in) {
        (true, _) => format!("<p>{}</p>", w.no_password),
        (false, true) => format!("<p><a href=\"{}\">{}</a></p>", PASSWORD, w.password),
        (false, false) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    fn page(account: Shown) -> Page {
        let words = words::of(["en"].into_iter());
        let (relay, proxy) = ("relay".to_owned(), "192.0.2.1:3128".to_owned());
        let tunnel = Some("<i>ship".to_owned());
        let offered = Some(Offered { proxy, tls: false });
        Page { words, relay, offered, script: true, tunnel, account }
    }

    #[test]
    fn says_what_is_used_and_left_and_escapes_names() {
        let status = AccountStatus {
            quota: Some(300_000_000_000),
            quota_left: Some(287_600_000_000),
            limit_down: Some(5_000_000),
            ..AccountStatus::default()
        };
        let details = AccountDetails {
            devices: vec![("<script>x</script>\u{202e}".into(), "anna".into())],
            users: vec!["anna".into()],
            renews: Some("2026-12-01 00:00 Asia/Tokyo".into()),
            expires: None,
        };
        let name = "a\"<b>".to_owned();
        let text =
            page(Shown::Account { name, status: Box::new(status), details, may_log_in: true })
                .body();
        for part in [
            "Used <b>12.4 GB</b> of 300 GB</p><p>Left <b>288 GB</b>",
            "width=\"4.1\"",
            "<bdi>a&quot;&lt;b&gt;</bdi>",
            "<bdi>&lt;script&gt;x&lt;/script&gt;\u{202e}</bdi> <small><bdi>anna</bdi></small>",
            "0 kbit/s (at most 5.00 Mbit/s)",
            "http://192.0.2.1:3128/proxy.pac",
            "proxy server <code>192.0.2.1</code>, port <code>3128</code>",
            "<a href=\"/?password\">Change a password</a>",
            "The relay to <bdi>&lt;i&gt;ship</bdi>",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("<script").count(), 1, "{text}");
    }

    #[test]
    fn long_links_have_no_code() {
        // "http://", a port and "/proxy.pac" take 22 bytes
        for (length, drawn) in [(84, true), (85, false)] {
            let proxy = format!("{}:3128", "a".repeat(length));
            let offered = Some(Offered { proxy, tls: false });
            let text = Page { offered, ..page(Shown::NoAccounts) }.body();
            assert_eq!(text.contains("<svg class=\"qr\""), drawn, "{length}: {text}");
        }
    }

    #[test]
    fn only_its_own_style_sheet_and_script_are_allowed() {
        let head = page(Shown::NoAccounts).head(200, "");
        assert!(head.contains("default-src 'none'; style-src 'sha256-"), "{head}");
        assert!(head.contains("; script-src 'sha256-"), "{head}");
        assert!(!head.contains("unsafe"), "{head}");
    }
}
