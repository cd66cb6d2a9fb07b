//! The script for browsers, in the language of Netscape's "Navigator Proxy Auto-Config File Format" (1996),
//! which all browsers and systems read.

use crate::settings::Pac;
use std::fmt::Write as _;

/// Its media type.
pub const TYPE: &str = "application/x-ns-proxy-autoconfig";

/// Whether a target in origin form asks for the script.
pub fn is_asked_for(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    matches!(path, "/proxy.pac" | "/wpad.dat")
}

/// The script that sends browsers to `proxy`, `host:port` of this relay; `tls`: by TLS.
pub fn script(proxy: &str, tls: bool, settings: &Pac) -> String {
    let kind = if tls { "HTTPS" } else { "PROXY" };
    let fallback = if settings.fallback { "; DIRECT" } else { "" };
    let mut text = String::from(
        "function FindProxyForURL(url, host) {\n  host = host.toLowerCase();\n  \
         if (isPlainHostName(host) || dnsDomainIs(host, \".local\")) return \"DIRECT\";\n",
    );
    for name in &settings.direct {
        // letters, digits, "-", "." and "_" only
        let test = match name.strip_prefix("*.") {
            Some(parent) => format!("host == \"{parent}\" || dnsDomainIs(host, \".{parent}\")"),
            None => format!("host == \"{name}\""),
        };
        let _ = writeln!(text, "  if ({test}) return \"DIRECT\";");
    }
    let _ = write!(text, "  return \"{kind} {proxy}{fallback}\";\n}}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_some_settings() {
        let settings =
            Pac { direct: vec!["intra.example".into(), "*.lan.example".into()], ..Pac::default() };
        insta::assert_snapshot!(script("192.168.1.1:3128", false, &settings));
        let strict = Pac { fallback: false, ..Pac::default() };
        assert!(
            script("relay.example:443", true, &strict)
                .contains("return \"HTTPS relay.example:443\";")
        );
    }

    #[test]
    fn two_paths_ask_for_it() {
        assert!(is_asked_for("/proxy.pac") && is_asked_for("/wpad.dat?x=1"));
        assert!(
            !is_asked_for("/")
                && !is_asked_for("http://h/proxy.pac")
                && !is_asked_for("/proxy.pac/")
        );
    }
}
