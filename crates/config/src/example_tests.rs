use super::*;

#[test]
fn the_committed_example_and_page_are_current() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let copies = [
        ("config.example.toml", example()),
        ("docs/book/src/reference/configuration.md", example::reference()),
    ];
    for (name, current) in copies {
        let path = format!("{root}/{name}");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &current).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == current, "{name}: run UPDATE=1 cargo test -p ekiden-config");
    }
}

/// The example with its keys in force, and its examples too if asked.
fn uncommented(examples: bool) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(' ') || rest.is_empty() => String::new(),
        Some(rest) => match rest.strip_prefix(": ") {
            Some(example) if examples => example.to_owned(),
            Some(_) => String::new(),
            None => rest.to_owned(),
        },
        None => line.to_owned(),
    };
    example().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_uncommented_is_the_defaults() {
    let reading = read(&uncommented(false), "example");
    assert_eq!(render_all(&reading.problems), "");
    assert_eq!(reading.settings, Settings::default());
    assert!(reading.origins.contains_key("leg.client.mptcp"), "keys are really in force");
}

#[test]
fn the_examples_in_the_example_are_right() {
    let reading = read(&uncommented(true), "example");
    assert_eq!(render_all(&reading.problems), "");
    assert_eq!(reading.settings.routes.len(), 2);
}

#[test]
fn config_show_reads_back() {
    let text = include_str!("../tests/good.toml");
    let reading = read(text, "good.toml");
    let again = read(&show(&reading, Some("good.toml")), "shown");
    assert_eq!(render_all(&again.problems), "");
    let mut settings = again.settings;
    // the passwords alone are not shown
    settings.upstreams.clone_from(&reading.settings.upstreams);
    assert_eq!(settings, reading.settings);
}
