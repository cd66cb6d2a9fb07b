use super::*;

fn series(name: &str, style: usize, values: &[f64]) -> Series {
    let point =
        |(n, y): (usize, &f64)| Point { x: n as f64, y: *y, interval: Some((y * 0.9, y * 1.1)) };
    Series { name: name.into(), style, points: values.iter().enumerate().map(point).collect() }
}

fn panel(kind: PanelKind) -> Panel {
    Panel {
        title: "8 MiB <file>".into(),
        x_title: "relays in a row".into(),
        y_title: "Mbit/s".into(),
        kind,
        ticks: (0..3).map(|n| (f64::from(n), n.to_string())).collect(),
        series: vec![series("un-split", 0, &[49.0]), series("ekiden", 3, &[50.0, 92.0, 191.0])],
        ..Panel::default()
    }
}

/// Tags alone: what is drawn and in which order, not where.
fn structure(svg: &str) -> String {
    let tags = svg.split('<').filter_map(|part| part.split([' ', '>', '/']).next());
    let mut list: Vec<(String, usize)> = Vec::new();
    for tag in tags.filter(|tag| !tag.is_empty()) {
        match list.last_mut() {
            Some((last, count)) if last == tag => *count += 1,
            _ => list.push((tag.to_owned(), 1)),
        }
    }
    list.iter().map(|(tag, n)| format!("{tag} × {n}\n")).collect()
}

#[test]
fn lines_have_a_reference_a_band_marks_and_names() {
    let svg = panel(PanelKind::Lines).svg();
    assert!(svg.contains("8 MiB &lt;file&gt;"));
    assert_eq!(svg.matches("<polygon").count(), 1);
    assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    insta::assert_snapshot!(structure(&svg));
}

#[test]
fn bars_have_whiskers_and_a_legend() {
    let svg = panel(PanelKind::Bars).svg();
    assert_eq!(svg.matches("class=\"w\"").count(), 4);
    insta::assert_snapshot!(structure(&svg));
}

#[test]
fn breaks_curves_at_gaps() {
    let lines = |gap: f64| {
        let mut panel = Panel { gap: Some(gap), ..panel(PanelKind::Curves) };
        panel.series = vec![series("RTO", 1, &[50.0, 92.0, 191.0, 80.0])];
        panel.series[0].points[2].x = 4.0;
        panel.series[0].points[3].x = 9.0;
        let svg = panel.svg();
        (svg.matches("<polyline").count(), svg.matches("<circle").count())
    };
    assert_eq!(lines(f64::INFINITY), (1, 0));
    assert_eq!(lines(2.5), (1, 2));
    assert_eq!(lines(0.5), (0, 4));
}

#[test]
fn draws_a_figure_without_panels() {
    let svg = figure("nothing", &[]);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn spans_have_a_row_each_and_grow_with_their_number() {
    let spans = |rows: usize| {
        let point = |n: usize| {
            let from = n as f64 / rows as f64;
            Point { x: from, y: n as f64, interval: Some((from, from + 0.5)) }
        };
        let points = (0..rows).map(point).collect();
        let series = vec![Series { name: "receiving".into(), style: 3, points }];
        Panel { series, marks: vec![0.5, 9.0], ..panel(PanelKind::Spans) }
    };
    let svg = spans(3).svg();
    assert_eq!(svg.matches("v26.7").count(), 3, "{svg}");
    // the event beyond the axis is left out
    assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    let height = |rows| spans(rows).size().1;
    assert!(height(10) == height(3) && height(80) > height(10));
}
