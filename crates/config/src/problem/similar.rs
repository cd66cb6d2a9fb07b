//! "did you mean …?"

/// A name among `known` that `wrong` may have been meant to be.
pub(crate) fn closest<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // a longer one is no typing error, and comparing it would cost
    if wrong.len() > 64 {
        return None;
    }
    let wrong = wrong.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// A hint: the closest name, or else the list of those that are valid.
pub(crate) fn hint(what: &str, wrong: &str, known: &[&str]) -> String {
    match closest(wrong, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => format!("there are no {what}"),
        None => {
            let mut list = String::new();
            for (index, name) in known.iter().enumerate() {
                if index == 40 {
                    list.push_str(", …");
                    break;
                }
                list.push_str(if index == 0 { "" } else { ", " });
                list.push_str(name);
            }
            format!("{what}: {list}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typing_errors_and_nothing_else() {
        let known = ["connect_timeout", "idle_timeout", "mss", "congestion"];
        assert_eq!(closest("conect_timeout", known), Some("connect_timeout"));
        assert_eq!(closest("congestions", known), Some("congestion"));
        assert_eq!(closest("colour", ["mss", "dscp"]), None);
        assert_eq!(
            hint("keys valid here", "colour", &["mss", "dscp"]),
            "keys valid here: mss, dscp"
        );
    }
}
