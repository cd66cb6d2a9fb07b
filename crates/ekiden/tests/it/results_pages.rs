//! The book's results pages, one a study, from its `summary.json`. `UPDATE=1` writes them.

use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const STUDIES: [(&str, &str); 7] = [
    ("thin-client", "Delays of remote desktops on a path that loses nothing."),
    ("island", "Relays on the way to an island 50 ms away."),
    ("proxy-pressure", "A proxy whose connections and buffers run out."),
    ("asymmetric", "A thin uplink under a wide downlink."),
    ("satellite", "A rate held across loss."),
    ("pages", "Pages by HTTPS in a browser, over a satellite link."),
    ("agreement", "The simulator beside this machine's kernel."),
];
const ENGINES: [(&str, &str); 2] = [("sim", "Simulator"), ("kernel", "Linux kernel")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

/// Three significant digits, as the reports print them.
fn number(value: &Value) -> String {
    let Some(value) = value.as_f64() else { return "–".to_owned() };
    let whole = value.abs().max(1e-9).log10().floor() as i32;
    let digits = usize::try_from(2 - whole).unwrap_or(0).min(4);
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn bounds(row: &Value) -> String {
    match (row["low"].is_null(), row["high"].is_null()) {
        (false, false) => format!("{} … {}", number(&row["low"]), number(&row["high"])),
        (false, true) => format!("≥ {}", number(&row["low"])),
        (true, false) => format!("≤ {}", number(&row["high"])),
        (true, true) => "–".to_owned(),
    }
}

fn holds(of: &Value) -> &'static str {
    match of["holds"].as_bool() {
        Some(true) => "holds",
        Some(false) => "**does not hold**",
        None => "not asserted on this engine",
    }
}

/// Old measurements cite studies by number and quote with guillemets.
fn plain(words: &str) -> String {
    let mut words = words.replace(['\u{ab}', '\u{bb}'], "\"").replace('|', "/");
    for (nth, study) in
        ["thin-client", "island", "proxy-pressure", "asymmetric", "satellite"].iter().enumerate()
    {
        words = words.replace(&format!("seed {nth}"), &format!("the {study} study"));
    }
    words
}

fn row(out: &mut String, cells: &[String]) {
    writeln!(out, "| {} |", cells.join(" | ")).unwrap();
}

fn head(out: &mut String, cells: &[&str]) {
    row(out, &cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    row(out, &vec!["---".to_owned(); cells.len()]);
}

fn section(out: &mut String, study: &str, engine: &str, title: &str, summary: &Value) {
    let seconds = summary["seconds"].as_f64().unwrap_or_default();
    let command = format!("ekiden lab run {study} --engine {engine}");
    write!(
        out,
        "\n## {title}\n\n`{command}`, version {}, {seconds:.0} s. Rows and report: `experiments/results/{study}/{engine}`.\n",
        text(summary, "version")
    )
    .unwrap();
    for maker in summary["makers"].as_array().into_iter().flatten() {
        let parts = maker["parts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let parts = parts.collect::<Vec<_>>().join(", ");
        writeln!(out, "Version {} made: {parts}.", text(maker, "version")).unwrap();
    }
    let rows = summary["rows"].as_array().filter(|rows| !rows.is_empty());
    if let Some(rows) = rows {
        out.push_str("\n### Published and measured\n\n");
        head(out, &["row", "unit", "published", "measured", "accepted", ""]);
        for one in rows {
            let cells = [
                plain(text(one, "name")),
                plain(text(one, "unit")),
                number(&one["published"]),
                number(&one["measured"]),
                bounds(one),
                holds(one).to_owned(),
            ];
            row(out, &cells);
        }
    }
    let claims = summary["claims"].as_array().filter(|claims| !claims.is_empty());
    if let Some(claims) = claims {
        out.push_str("\n### Claims\n\n");
        head(out, &["claim", "", "evidence"]);
        for one in claims {
            let cells =
                [plain(text(one, "text")), holds(one).to_owned(), plain(text(one, "evidence"))];
            row(out, &cells);
        }
    }
    for table in summary["tables"].as_array().into_iter().flatten() {
        let lines: Vec<_> = table["lines"].as_array().into_iter().flatten().collect();
        if lines.is_empty() {
            continue;
        }
        write!(
            out,
            "\n### {}\n\n{}\n\n",
            plain(text(table, "title")),
            plain(text(table, "caption"))
        )
        .unwrap();
        let titles: Vec<_> =
            table["head"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        head(out, &titles);
        for line in lines {
            let labels = line["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut cells: Vec<_> = labels.map(plain).collect();
            cells.extend(line["medians"].as_array().into_iter().flatten().map(number));
            cells.resize(titles.len(), "–".to_owned());
            row(out, &cells);
        }
    }
    if rows.is_none() && claims.is_none() {
        out.push_str("\n### Measured\n\n");
        head(out, &["cell", "value"]);
        for (name, value) in summary["measured"].as_object().into_iter().flatten() {
            row(out, &[plain(name), number(value)]);
        }
    }
}

fn page(study: &str, about: &str) -> String {
    let mut out = format!(
        "<!-- made by the test results_pages; UPDATE=1 writes it anew -->\n# {study}\n\n{about} Medians.\n"
    );
    for (engine, title) in ENGINES {
        let path = root().join(format!("experiments/results/{study}/{engine}/summary.json"));
        let Ok(summary) = fs::read_to_string(path) else { continue };
        section(&mut out, study, engine, title, &serde_json::from_str(&summary).unwrap());
    }
    out
}

#[test]
fn results_pages_match_their_summaries() {
    for (study, about) in STUDIES {
        let path = root().join(format!("docs/book/src/results/{study}.md"));
        let made = page(study, about);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &made).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{} is out of date: UPDATE=1 writes it", path.display());
    }
}
