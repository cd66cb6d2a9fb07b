//! Why an order failed, and what to try.

use crate::web::{NoAnswer, Noticed};
use instant_acme::{Error, Problem};

/// A clock that is this many seconds off makes certificates look expired, or not valid yet.
const OFF: i64 = 300;

/// The kind of a problem without its prefix (RFC 8555 §6.7), as `rateLimited`.
pub(crate) fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind)
}

/// Whether an error is this kind of problem.
pub(crate) fn is_problem(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::Api(problem) if kind(problem) == wanted)
}

/// A problem with the words of the authority and a hint. `name`: whose challenge it was about.
pub(crate) fn problem(problem: &Problem, name: Option<&str>) -> String {
    let kind = kind(problem);
    let mut detail = problem.detail.clone().unwrap_or_else(|| kind.to_owned());
    for part in &problem.subproblems {
        detail.push_str(&format!("; {part}"));
    }
    let of = name.map_or_else(String::new, |name| format!("{name}: "));
    let this = name.unwrap_or("the name");
    let hint = match kind {
        "connection" => format!(
            "; the authority connects to {this} on port 443: open it for everybody, listen there (`listen`), or forward it to this relay"
        ),
        "dns" => format!("; {this} must have this machine's public address in the DNS"),
        "tls" | "unauthorized" | "incorrectResponse" if name.is_some() => format!(
            "; port 443 of {this} must be open to everybody and lead to this relay"
        ),
        "malformed" if name.is_some() => {
            format!("; {this} must have this machine's public address in the DNS")
        }
        "caa" => format!("; a CAA record of {this} does not allow this authority"),
        "rejectedIdentifier" => "; the authority does not certify this name".to_owned(),
        "rateLimited" => "; nothing is ordered before the authority allows it".to_owned(),
        "externalAccountRequired" => {
            "; set `external_key_id` and `external_key_file` in [acme] as the authority gave them to you".to_owned()
        }
        "invalidContact" | "unsupportedContact" => "; correct `contact` in [acme]".to_owned(),
        "userActionRequired" => "; the authority's terms have changed: read them".to_owned(),
        "serverInternal" => "; the authority is out of order".to_owned(),
        _ => String::new(),
    };
    format!("{of}{}{hint}", detail.trim_end_matches('.'))
}

/// Any error of an order.
pub(crate) fn error(error: &Error) -> String {
    match error {
        Error::Api(inner) => problem(inner, None),
        Error::Other(inner) if inner.is::<NoAnswer>() => {
            format!("the authority cannot be asked: {inner}")
        }
        Error::Timeout(_) => "the authority did not decide in time".to_owned(),
        Error::Json(inner) => format!(
            "the authority's answer cannot be read: {inner}; `directory` in [acme] must be an ACME directory's URL"
        ),
        Error::Str("no nonce found in newNonce response") | Error::Crypto | Error::KeyRejected => {
            format!("{error}; the account's file may be damaged")
        }
        other => other.to_string(),
    }
}

/// What to say of this machine's clock, if it is wrong.
pub(crate) fn clock(noticed: Noticed) -> String {
    if noticed.ahead.abs() < OFF {
        return String::new();
    }
    let way = if noticed.ahead > 0 { "ahead of" } else { "behind" };
    let by = std::time::Duration::from_secs(noticed.ahead.unsigned_abs());
    let by = humantime::format_duration(by);
    format!("; this machine's clock is {by} {way} the authority's: set it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: &str, detail: &str) -> Problem {
        Problem {
            r#type: Some(format!("urn:ietf:params:acme:error:{kind}")),
            detail: Some(detail.to_owned()),
            status: Some(403),
            subproblems: Vec::new(),
        }
    }

    #[test]
    fn each_problem_says_what_to_try() {
        for (kind, name, hint) in [
            ("connection", Some("a.example"), "connects to a.example on port 443"),
            ("dns", Some("a.example"), "a.example must have this machine's public address"),
            ("unauthorized", Some("a.example"), "and lead to this relay"),
            ("caa", Some("a.example"), "CAA record of a.example"),
            ("rateLimited", None, "before the authority allows it"),
            ("externalAccountRequired", None, "`external_key_id`"),
            ("invalidContact", None, "`contact`"),
        ] {
            let text = problem(&said(kind, "it says."), name);
            assert!(text.contains("it says; ") && text.contains(hint), "{text}");
        }
        let text = error(&Error::Other(Box::new(NoAnswer("ca.example: refused".to_owned()))));
        assert_eq!(text, "the authority cannot be asked: ca.example: refused");
        assert!(is_problem(&Error::Api(said("badNonce", "")), "badNonce"));
    }

    #[test]
    fn a_wrong_clock_is_said() {
        let noticed = |ahead| Noticed { ahead, retry_after: None };
        assert_eq!(clock(noticed(-100)), "");
        assert!(clock(noticed(7200)).contains("2h ahead of the authority's"));
        assert!(clock(noticed(-86_400)).contains("1day behind"));
    }
}
