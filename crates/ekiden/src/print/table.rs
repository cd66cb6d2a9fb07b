//! Tables, and lines that fit a terminal.

/// A table with a blank line before it; lines are cut at `width`.
pub(crate) fn table(
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    right: &[bool],
    width: Option<usize>,
) -> String {
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..right.len())
        .map(|column| {
            let cells = all.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::from("\n");
    for row in &all {
        let cells = row.iter().zip(&widths).zip(right).map(|((cell, width), right)| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    cut(&out, width)
}

/// Breaks lines at spaces and indents continuation lines by two.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::new();
    for line in text.lines() {
        let mut used = 0;
        // the padding within a table's line, which has been cut to fit, is kept
        if line.chars().count() <= width {
            out.push_str(line);
        } else {
            for word in line.split(' ') {
                let length = word.chars().count();
                if used > 0 && used + 1 + length > width {
                    out.push_str("\n  ");
                    used = 2;
                } else if used > 0 {
                    out.push(' ');
                    used += 1;
                }
                out.push_str(word);
                used += length;
            }
        }
        out.push('\n');
    }
    out
}

/// Cuts lines at `width`.
pub(crate) fn cut(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    // only padding or the end of a name is lost
    let line = |line: &str| line.chars().take(width).chain(['\n']).collect::<String>();
    text.lines().map(line).collect()
}

/// A cell without a value.
pub(crate) fn dash() -> String {
    "-".to_owned()
}
