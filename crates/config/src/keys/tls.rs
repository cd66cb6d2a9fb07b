//! Keys of TLS towards clients: `[tls]`, and of certificates that are ordered: `[acme]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::{Kind, absolute_path};
use crate::value::pattern::shorten;
use std::net::IpAddr;

pub(super) static TLS: &[Key<Draft>] = keys! { Draft, |draft| draft.tls;
    certificate = certificate: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate chain for clients that use TLS to this proxy (https://). Ekiden reads it again when it changes.",
        "A TLS connection counts as two (budgets.connections). It copies and encrypts its bytes, which costs 64 KiB of budgets.sessions and processor time.",
        "To let accounts log in over a foreign network.";
    key = key: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate's key.", "Its readers can impersonate this proxy.", "As above.";
};

/// The most names of one certificate; Let's Encrypt takes a hundred.
pub(crate) const MOST_NAMES: usize = 100;

pub(super) static ACME: &[Key<Draft>] = keys! { Draft, |draft| draft.acme;
    names = names: Kind::Words("names in the DNS", dns_name), Some(""),
        "The names of the certificate. Each must lead to this relay. The authority connects to port 443 of each and checks who answers (TLS-ALPN-01, RFC 8737), which cannot be done for wildcards and addresses.",
        "Every certificate is published in logs, with its names.",
        "On a relay with a public address, in place of [tls] certificate.";
    agree_to_terms = agree_to_terms: Kind::Switch, None,
        "Whether you agree to the authority's terms of service (Let's Encrypt: https://letsencrypt.org/repository/). Needed.",
        "None.", "When you have read them.";
    contact = contact: Kind::Words("mail addresses", mail), Some(""),
        "Mail addresses for the authority. Most authorities do without.",
        "The authority keeps them.", "If the authority asks for one.";
    directory = directory: Kind::Text("an https:// URL", directory), None,
        "The authority's ACME directory. https://acme-staging-v02.api.letsencrypt.org/directory issues certificates for trials, which no client trusts, and allows many more orders.",
        "None.", "For trials; for an authority of your own.";
    ca = authorities: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the authorities to trust for the directory's own certificate. They replace the system's.",
        "None.", "For an authority of your own.";
    external_key_id = external_key_id: Kind::Text("a key identifier", |_| Ok(())), Some(""),
        "The key identifier of your account with the authority (external account binding, RFC 8555 section 7.3.4). It is used once, when the account here is made.",
        "None.", "If the authority gave you one.";
    external_key_file = external_key_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "A file with the key of that account in base64url.", "Its readers can order in your name.", "As above.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The folder below which account, keys and certificates are kept, in `acme`. \"auto\": as for [tunnel] state.",
        "Its readers can impersonate this proxy.", "Several daemons of one user on one machine.";
};

/// A name that an authority can check by TLS-ALPN-01.
fn dns_name(text: &str) -> Result<(), String> {
    let shown = shorten(text);
    if text.starts_with('*') {
        return Err(format!(
            "\"{shown}\" is a wildcard, which the challenge TLS-ALPN-01 cannot prove: list each name, or use [tls] certificate"
        ));
    }
    if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Err(format!(
            "\"{shown}\" is an address, and a certificate is ordered for names: give this machine a name in the DNS"
        ));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let fine = text.len() <= 253 && text.contains('.') && text.split('.').all(label);
    match fine {
        true => Ok(()),
        false => Err(format!(
            "\"{shown}\" is not a public name such as relay.example.org; names of other alphabets are written as xn--…, and none ends with a dot"
        )),
    }
}

fn mail(text: &str) -> Result<(), String> {
    let parts = text.split_once('@');
    let fine = parts.is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
        && !text.contains(':')
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match fine {
        true => Ok(()),
        false => {
            Err(format!("\"{}\" is not a mail address such as you@example.org", shorten(text)))
        }
    }
}

fn directory(text: &str) -> Result<(), String> {
    let host = text.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
    let fine = host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match fine {
        true => Ok(()),
        false => Err(format!("\"{}\" is not an https:// URL", shorten(text))),
    }
}
