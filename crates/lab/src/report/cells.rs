//! A part's cells as a table: one line a condition, one column a peer.

use crate::cell::axis::{self, Axis};
use crate::chart::escape;
use crate::evaluation::{CellResult, Compared, Evaluation, Short};
use crate::plan::{Part, Plan};
use std::collections::BTreeSet;

/// The table; axes that are the same for the whole part stand in its heading alone.
pub(super) fn table(part: &Part, plan: &Plan, evaluation: &Evaluation) -> String {
    let cells: Vec<&CellResult> =
        evaluation.cells.iter().filter(|result| result.cell.part == part.name).collect();
    if cells.is_empty() {
        return "<p class=\"muted\">Not run.</p>".to_owned();
    }
    let by = plan.paired_in(&part.name);
    let values = |axis: &Axis| -> BTreeSet<&String> {
        cells.iter().filter_map(|result| result.cell.values.get(axis.name)).collect()
    };
    let varied: Vec<&'static Axis> =
        axis::all().filter(|axis| axis.name != by && values(axis).len() > 1).collect();
    let paired = axis::named(by);
    let mut peers: Vec<&String> = paired.map(&values).unwrap_or_default().into_iter().collect();
    let rank = |peer: &str| paired.map_or(0.0, |axis| axis.rank(peer));
    peers.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let mut out = format!(
        "<p class=\"muted\">{}. Median, 95 % interval, number of runs.</p>\
         <div class=\"scroll\"><table class=\"cells\"><thead><tr>",
        escape(&fixed(&cells, by))
    );
    for axis in &varied {
        out += &format!("<th>{}</th>", escape(axis.title));
    }
    for peer in &peers {
        let name = paired.map_or_else(|| peer.to_string(), |axis| axis.shown(peer));
        out += &format!("<th class=\"n\">{}</th>", escape(&name));
    }
    let compared = evaluation.compared.iter().any(|c| c.cell.part == part.name);
    if compared {
        out.push_str("<th class=\"n\">over the faster</th>");
    }
    out.push_str("</tr></thead><tbody>");
    let mut lines: Vec<Vec<&CellResult>> = Vec::new();
    for result in &cells {
        let condition = |r: &CellResult| r.cell.key_without(&[by]);
        match lines.iter_mut().find(|line| condition(line[0]) == condition(result)) {
            Some(line) => line.push(result),
            None => lines.push(vec![result]),
        }
    }
    lines.sort_by(|a, b| a[0].cell.compare_by(&b[0].cell, varied.iter().copied()));
    for line in lines {
        out.push_str("<tr>");
        for axis in &varied {
            let value = line[0].cell.values.get(axis.name).map_or(String::new(), |v| axis.shown(v));
            out += &format!("<td>{}</td>", escape(&value));
        }
        for peer in &peers {
            let found = line.iter().find(|r| r.cell.values.get(by) == Some(*peer));
            out += &found.map_or("<td class=\"n\">–</td>".to_owned(), |r| value(r));
        }
        if compared {
            let same = |c: &&Compared| line.iter().any(|r| r.cell == c.cell);
            let found = evaluation.compared.iter().find(same);
            out += &found.map_or("<td class=\"n\"></td>".to_owned(), ratio);
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// The axes that do not vary within a part, in words.
fn fixed(cells: &[&CellResult], by: &str) -> String {
    let same = axis::all().filter_map(|axis| {
        let values: BTreeSet<&String> =
            cells.iter().filter_map(|r| r.cell.values.get(axis.name)).collect();
        let everywhere = cells.iter().all(|r| r.cell.values.contains_key(axis.name));
        let only = values.first().filter(|_| values.len() == 1 && everywhere)?;
        (axis.name != by).then(|| format!("{} {}", axis.title, axis.shown(only)))
    });
    same.collect::<Vec<_>>().join(" · ")
}

fn value(result: &CellResult) -> String {
    let range =
        result.interval.map_or(String::new(), |i| format!("{}–{}", Short(i.low), Short(i.high)));
    let mut marks = String::new();
    if result.tainted > 0 {
        marks += &format!(
            " <abbr title=\"{} of {} runs on links that did not keep their time\">†</abbr>",
            result.tainted,
            result.runs.len()
        );
    }
    if result.failures > 0 {
        marks += &format!(" <abbr title=\"{} attempts failed\">!</abbr>", result.failures);
    }
    format!(
        "<td class=\"n\"><b>{}</b>{marks}<small>{range} <i>×{}</i></small></td>",
        Short(result.median),
        result.runs.len()
    )
}

fn ratio(compared: &Compared) -> String {
    let beside = &compared.beside;
    let range = beside.interval.map_or(String::new(), |i| format!("{:.2}–{:.2} ", i.low, i.high));
    let class = match beside.interval {
        Some(i) if i.low > 1.0 => "up",
        Some(i) if i.high < 1.0 => "down",
        _ => "",
    };
    format!(
        "<td class=\"n {class}\"><b>{:.2}</b><small>{range}<i>{}</i></small></td>",
        beside.ratio,
        escape(&beside.fastest)
    )
}
