//! The certificate that the relay orders.

use crate::print::{clean, count, seconds};
use ekiden_proxy::observe::status::AcmeStatus;

/// A line, and another for failures.
pub(crate) fn render(acme: &AcmeStatus) -> String {
    let names: Vec<_> = acme.names.iter().map(|name| clean(name)).collect();
    let (names, next) = (names.join(", "), acme.next_order_in_seconds);
    let now = match acme.expires_in_seconds {
        None => "none yet".to_owned(),
        Some(left) if left > 0.0 => format!("ends in {}", seconds(left)),
        Some(left) => format!("ended {} ago", seconds(-left)),
    };
    let next = match next.map(|wait| wait.max(0.0)) {
        _ if acme.overdue().is_some() => "an order is overdue: restart ekiden".to_owned(),
        None => "an order is under way".to_owned(),
        Some(wait) if acme.expires_in_seconds.is_none() => {
            format!("next order in {}", seconds(wait))
        }
        Some(wait) => format!("renewed in {}", seconds(wait)),
    };
    let mut out = format!("certificate for {names}: {now}; {next}\n");
    if let Some(why) = &acme.last_failure {
        let ago = acme.last_failure_seconds_ago.unwrap_or_default();
        out.push_str(&format!(
            "  {}, the last {} ago: {}\n",
            count(acme.failures.into(), "failed order"),
            seconds(ago),
            clean(why)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(left: Option<f64>, next: Option<f64>, failed: Option<&str>) -> AcmeStatus {
        AcmeStatus {
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            expires_in_seconds: left,
            next_order_in_seconds: next,
            failures: u32::from(failed.is_some()),
            last_failure: failed.map(str::to_owned),
            last_failure_seconds_ago: failed.map(|_| 5.0),
            ..AcmeStatus::default()
        }
    }

    #[test]
    fn says_what_is_and_what_comes() {
        let day = 86_400.0;
        let text = [
            render(&status(None, None, None)),
            render(&status(Some(62.0 * day), Some(30.0 * day), None)),
            render(&status(Some(-day), Some(600.0), Some("a.example: refused"))),
            render(&status(None, Some(60.0), Some("no answer"))),
        ];
        insta::assert_snapshot!(text.concat());
    }
}
