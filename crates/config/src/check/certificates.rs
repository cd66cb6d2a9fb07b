//! The certificate for clients: given in files, or ordered.

use crate::draft::Draft;
use crate::keys::tls::MOST_NAMES;
use crate::reader::Reader;
use ekiden_proxy::settings::Acme;

pub(super) fn tls(reader: &mut Reader<'_>) {
    // also where what is written is no path
    let has = |reader: &Reader<'_>, key: &str| reader.spans.contains_key(key);
    match (has(reader, "tls.certificate"), has(reader, "tls.key")) {
        (true, false) => reader.error("tls.certificate", "`certificate` needs its `key`", ""),
        (false, true) => reader.error("tls.key", "`key` needs its `certificate`", ""),
        _ => {}
    }
}

/// The port to which an authority connects (RFC 8737 §3).
const CHALLENGED: u16 = 443;

pub(super) fn acme(reader: &mut Reader<'_>, draft: &Draft) {
    let acme = &draft.acme;
    if !acme.is_on() {
        if *acme != Acme::default() {
            reader.warn(
                "acme",
                "no certificate is ordered without `names`",
                "names = [\"relay.example.org\"], or remove [acme]",
            );
        }
        return;
    }
    if draft.tls.certificate.is_some() || draft.tls.key.is_some() {
        reader.error(
            "acme.names",
            "[acme] orders the certificate that [tls] names a file for",
            "remove `certificate` and `key` of [tls], or [acme]",
        );
    }
    if !acme.agree_to_terms {
        reader.error(
            "acme.names",
            "an authority issues certificates to those who agree to its terms",
            "read them (Let's Encrypt: https://letsencrypt.org/repository/) and set agree_to_terms = true",
        );
    }
    if acme.names.len() > MOST_NAMES {
        reader.error(
            "acme.names",
            format!(
                "a certificate has at most {MOST_NAMES} names, and here are {}",
                acme.names.len()
            ),
            "",
        );
    }
    let mut seen = std::collections::BTreeSet::new();
    for (index, name) in acme.names.iter().enumerate() {
        if !seen.insert(name.to_ascii_lowercase()) {
            let path = format!("acme.names[{index}]");
            reader.warn(&path, format!("`{name}` is in the list twice"), "");
        }
    }
    match (&acme.external_key_id, &acme.external_key_file) {
        (Some(_), None) => reader.error(
            "acme.external_key_id",
            "`external_key_id` needs its `external_key_file`",
            "",
        ),
        (None, Some(_)) => reader.error(
            "acme.external_key_file",
            "`external_key_file` needs its `external_key_id`",
            "",
        ),
        _ => {}
    }
    if !draft.top.listen.iter().any(|address| address.port() == CHALLENGED) {
        reader.warn(
            "acme.names",
            "the authority connects to port 443, and this relay does not listen there",
            "add \"0.0.0.0:443\" and \"[::]:443\" to `listen`, or forward port 443 to a port of `listen`",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(more: &str) -> String {
        let text = format!("listen = [\"127.0.0.1:443\"]\n{more}");
        render_all(&read(&text, "test.toml").problems)
    }

    #[test]
    fn an_order_needs_names_that_can_be_proven_and_a_yes() {
        let fine =
            "[acme]\nnames = [\"relay.example\", \"a.relay.example\"]\nagree_to_terms = true\n";
        assert_eq!(problems(fine), "");
        for (names, words) in [
            ("*.relay.example", "cannot prove"),
            ("192.0.2.1", "is an address"),
            ("2001:db8::1", "is an address"),
            ("localhost", "is not a public name"),
            ("relay.example.", "is not a public name"),
            ("rélay.example", "is not a public name"),
            ("-a.example", "is not a public name"),
        ] {
            let found = problems(&format!("[acme]\nagree_to_terms = true\nnames = \"{names}\"\n"));
            assert!(found.contains(words), "{names}: {found}");
        }
        let found = problems("[acme]\nnames = \"relay.example\"\n");
        assert!(found.contains("agree_to_terms = true"), "{found}");
        let found = problems("[acme]\ncontact = \"you@example.org\"\n");
        assert!(found.contains("without `names`"), "{found}");
        for (key, words) in [
            ("contact = \"mailto:you@example.org\"", "is not a mail address"),
            ("directory = \"http://ca.example/\"", "is not an https:// URL"),
            ("external_key_id = \"kid\"", "needs its `external_key_file`"),
            ("external_key_file = \"/k\"", "needs its `external_key_id`"),
        ] {
            let found = problems(&format!("{fine}{key}\n"));
            assert!(found.contains(words), "{key}: {found}");
        }
    }

    #[test]
    fn an_order_and_a_file_exclude_each_other_and_port_443_is_missed() {
        let order = "[acme]\nnames = \"relay.example\"\nagree_to_terms = true\n";
        let found = problems(&format!("{order}[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n"));
        assert!(found.contains("[tls] names a file for"), "{found}");
        let found = render_all(&read(order, "test.toml").problems);
        assert!(found.contains("add \"0.0.0.0:443\""), "{found}");
        assert!(read(order, "test.toml").is_usable());
    }
}
