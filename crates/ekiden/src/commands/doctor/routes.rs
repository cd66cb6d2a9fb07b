//! `--apply` for what a setting cannot say: the shortest retransmission time-out of default routes, by iproute2's `ip`.
//! Everything else of a route stays as it is.

use super::apply::Change;
use super::{Finding, Severity};
use std::process::Command;

/// Longer than the kernel's 200 ms, below which echoes that come late are sent twice (algorithms/thin-client B.7).
const ASKED: &str = "500ms";

/// Gives each default route without one a shortest time-out, if the finding says so.
pub(super) fn apply(findings: &[Finding]) -> Vec<Change> {
    let says = |finding: &&Finding| {
        let mend = finding.mend.as_deref().unwrap_or_default();
        finding.severity > Severity::Ok && mend.contains(&format!("rto_min {ASKED}"))
    };
    if !findings.iter().any(|finding| says(&finding)) {
        return Vec::new();
    }
    ["-4", "-6"].into_iter().flat_map(of_family).collect()
}

fn of_family(family: &str) -> Vec<Change> {
    let text = match ip(&[family, "route", "show", "default"]) {
        Ok(text) => text,
        Err(why) => {
            let why = format!("{why}; it is in the package iproute2");
            // said once
            return if family == "-4" { vec![change("default routes", Err(why))] } else { vec![] };
        }
    };
    text.lines().filter(|line| is_meant(line)).map(|line| of_route(family, line)).collect()
}

/// A default route that may be changed: one of routers' own announcing comes again as it was.
fn is_meant(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let announced = words.windows(2).any(|pair| pair == ["proto", "ra"]);
    words.first() == Some(&"default") && !words.contains(&"rto_min") && !announced
}

fn of_route(family: &str, line: &str) -> Change {
    let words: Vec<&str> = line.split_whitespace().collect();
    if !words.contains(&"dev") {
        let why = "it has several next hops; `ip route change` them by hand".to_owned();
        return change(line.trim(), Err(why));
    }
    // what the route does now is not what it is
    let states = ["linkdown", "dead", "offload"];
    let kept = words.iter().copied().filter(|word| !states.contains(word));
    let mut asked = vec![family, "route", "change"];
    asked.extend(kept.chain(["rto_min", ASKED]));
    change(line.trim(), ip(&asked).map(drop))
}

fn change(route: &str, done: Result<(), String>) -> Change {
    Change {
        name: format!("rto_min of \"{route}\""),
        before: None,
        asked: ASKED.to_owned(),
        after: done.is_ok().then(|| ASKED.to_owned()),
        refused: done.err(),
    }
}

fn ip(words: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip says \"{}\"", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_have_one_or_come_again_are_left_alone() {
        assert!(is_meant("default via 10.0.0.1 dev eth0 proto dhcp metric 100 "));
        assert!(!is_meant("default via 10.0.0.1 dev eth0 rto_min lock 500ms"));
        assert!(!is_meant("default via fe80::1 dev eth0 proto ra metric 1024"));
        assert!(!is_meant("\tnexthop via 10.0.0.1 dev eth0 weight 1"));
        assert!(!is_meant(""));
    }

    #[test]
    fn several_next_hops_are_left_to_hands() {
        let told = of_route("-4", "default proto static");
        assert!(told.refused.is_some_and(|why| why.contains("several next hops")));
    }
}
