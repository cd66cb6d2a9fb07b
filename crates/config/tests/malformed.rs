//! Configurations that must be refused: each with its place, a message that names the problem, and
//! no panic on the way.
#![allow(clippy::unwrap_used)]

use ekiden_config::{read, render_all};

/// `{3*ab}` is `ababab`.
fn repeat(text: &str) -> String {
    let expanded = text.split_once('{').and_then(|(before, rest)| {
        let (inner, after) = rest.split_once('}')?;
        let (count, what) = inner.split_once('*')?;
        Some(format!("{before}{}{after}", what.repeat(count.parse().ok()?)))
    });
    expanded.unwrap_or_else(|| text.to_owned())
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('\\') => out.push('\\'),
            Some('x') => {
                let hex: String = chars.by_ref().take(2).collect();
                out.push(char::from(u8::from_str_radix(&hex, 16).unwrap()));
            }
            other => panic!("\\{other:?} is no escape"),
        }
    }
    out
}

#[test]
fn malformed_configurations_are_refused_with_their_place() {
    let mut wrong = Vec::new();
    let corpus = include_str!("malformed/config.txt");
    for (number, line) in corpus.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut parts = line.splitn(3, '|');
        let [place, fragment, text] = [(); 3].map(|()| parts.next().unwrap());
        let (place, fragment) = (place.trim(), fragment.trim());
        let text = unescape(&repeat(text.strip_prefix(' ').unwrap()));
        let reading = read(&text, "f.toml");
        let Some(first) = reading.problems.iter().find(|problem| problem.is_error()) else {
            wrong.push(format!("line {}: accepted", number + 1));
            continue;
        };
        let at = match &first.place {
            None => "-".to_owned(),
            Some(at) if place.ends_with('-') => format!("{}:-", at.line),
            Some(at) => format!("{}:{}", at.line, at.column),
        };
        let rendered = first.render();
        if at != place || !rendered.contains(fragment) || first.message.len() < 10 {
            wrong.push(format!("line {}: at {at}: {rendered}", number + 1));
        }
        assert!(!reading.is_usable() && !render_all(&reading.problems).is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A good file, cut after every byte: a problem or none, and never a panic.
#[test]
fn a_file_cut_short_anywhere_is_read_or_refused() {
    let good = include_str!("good.toml");
    for cut in (0..good.len()).filter(|cut| good.is_char_boundary(*cut)) {
        let reading = read(&good[..cut], "f.toml");
        for problem in &reading.problems {
            assert!(!problem.message.is_empty(), "cut at {cut}");
        }
    }
}

/// As deep and as much as the size limit lets through: refused, without exhausting stack or patience.
#[test]
fn deep_and_long_files_are_refused() {
    let many = 100_000;
    for text in [
        format!("a = {}", "[".repeat(many)),
        format!("a = {}", "{b=".repeat(many)),
        format!("{}a = 1", "a.".repeat(many)),
        format!("[{}a]", "a.".repeat(many)),
        format!("[[{}a]]", "a.".repeat(many)),
        format!("a = {{{}a = 1}}", "a.".repeat(many)),
        "[[rule]]\n".repeat(many),
        (0..many / 4).map(|n| format!("a{n} = 1\n")).collect::<String>(),
        (0..many / 8)
            .map(|n| format!("[leg.a{n}]\ninherit = \"a{}\"\n", n + 1))
            .collect::<String>(),
    ] {
        let reading = read(&text, "f.toml");
        assert!(!reading.is_usable(), "{}", &text[..40]);
        assert!(!render_all(&reading.problems).is_empty());
    }
}

/// One mistake is one message: what is mistyped is not taken for missing.
#[test]
fn a_mistyped_value_causes_no_other_report() {
    let messages = |text: &str| -> Vec<String> {
        read(text, "f").problems.iter().map(|problem| problem.message.clone()).collect()
    };
    let rules = messages(
        "[[rule]]\nfrom = [\"10.0.0.1/8\"]\naction = \"allow\"\n[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"deny\"\n",
    );
    assert!(rules.len() == 1 && rules[0].contains("10.0.0.0/8 was meant?"), "{rules:?}");
    // and hides none
    let tls = messages("[tls]\ncertificate = \"a.pem\"\n");
    assert!(tls.iter().any(|message| message.contains("not an absolute path")), "{tls:?}");
    assert!(tls.iter().any(|message| message.contains("`certificate` needs its `key`")), "{tls:?}");
}
