//! The directives of `Cache-Control` (RFC 9111 §5.2) that say something here. Each of any others would cost a hundred bytes
//! in memory, and a field may have ten thousand.

/// They are in lower case. `max-stale` is left out, because stale responses are never served.
const DIRECTIVES: [&[u8]; 11] = [
    b"immutable",
    b"max-age",
    b"min-fresh",
    b"must-revalidate",
    b"no-cache",
    b"no-store",
    b"private",
    b"proxy-revalidate",
    b"public",
    b"s-maxage",
    b"stale-while-revalidate",
];
/// What is kept of a directive: its name, and a number.
const MOST: usize = 64;

/// A value without what says nothing here.
pub(super) fn directives(value: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for directive in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        let name = name_of(directive);
        let directive = &directive[..directive.len().min(MOST)];
        let is_new = !kept.contains(&directive);
        // two that differ make it invalid; more say no more
        let same = || kept.iter().filter(|one| name_of(one) == name).count();
        if DIRECTIVES.contains(&name) && is_new && same() < 2 {
            kept.push(directive);
        }
    }
    kept.join(&b", "[..])
}

fn name_of(directive: &[u8]) -> &[u8] {
    directive.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_not_kept() {
        let many: Vec<String> = (0..10_000).map(|nth| format!("a{nth}")).collect();
        let many = many.join(", ");
        let asked = format!("no-cache, {many}, max-age=7{}", ", max-age=8".repeat(1_000));
        assert_eq!(directives(asked.as_bytes()), b"no-cache, max-age=7, max-age=8");
        let long = format!("private=\"{many}\", max-age={}", "9".repeat(10_000));
        assert!(directives(long.as_bytes()).len() <= 2 * MOST + 2);
        assert_eq!(directives(b" , max-stale, x=no-store, private = \"x\""), b"private = \"x\"");
    }
}
