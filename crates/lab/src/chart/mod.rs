//! Charts as SVG: [`Panel::svg`] draws one panel, `figure` several side by side as a file. They read in
//! light and dark; series differ in colour (Okabe and Ito's, for the colour-blind) and in their marks.

mod bars;
mod curves;
mod lines;
pub mod scale;
mod scatter;
mod spans;

use scale::Scale;

/// Of a panel, in pixels where it is not scaled.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 270.0;
const WIDE_HEIGHT: f64 = 210.0;
/// A row of spans, and the least height of all rows.
const ROW: f64 = 5.0;
const LEAST_ROWS: f64 = 100.0;
const LEFT: f64 = 46.0;
const RIGHT_LINES: f64 = 66.0;
const RIGHT_BARS: f64 = 8.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 44.0;

/// How values are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PanelKind {
    /// Points joined, with a band.
    #[default]
    Lines,
    /// Bars in groups, with whiskers.
    Bars,
    /// Many points joined, without marks.
    Curves,
    /// Marks alone, over an axis like the other.
    Scatter,
    /// Intervals along the x axis in rows, whose numbers are the points' `y`, from the top.
    Spans,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Place on the x axis; for bars, which group.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
}

/// Values that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, as labelled.
    pub name: String,
    /// Which colour and mark: a name keeps its own in all figures.
    pub style: usize,
    /// By x.
    pub points: Vec<Point>,
}

/// One panel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// Under the x axis, with its unit.
    pub x_title: String,
    /// Above the y axis, with its unit.
    pub y_title: String,
    /// What is drawn.
    pub kind: PanelKind,
    /// Whether y is logarithmic.
    pub log: bool,
    /// Names under the x axis and where they stand.
    pub ticks: Vec<(f64, String)>,
    /// What is drawn. A line of one point becomes a reference across the panel.
    pub series: Vec<Series>,
    /// The y axis reaches at least here, so that panels can share it.
    pub reach: Option<(f64, f64)>,
    /// Places on the x axis where something happened, for curves and spans.
    pub marks: Vec<f64>,
    /// Curves are broken where there is no sample for longer than this along the x axis; `None`: nowhere.
    pub gap: Option<f64>,
    /// Twice as wide and less high: panels of this kind stand one below the other.
    pub wide: bool,
}

/// The colours stand in a style of their own, so that a figure follows its page's light or dark.
pub(crate) const STYLE: &str = "\
.ek{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif;fill:#1b1f24;--s0:#767b82;--s1:#b3578c;--s2:#c98300;--s3:#0069b4;--s4:#00825e;--s5:#c04a00;--grid:#e3e6ea;--axis:#8b929b;--muted:#57606a}\
.ek .t{font-weight:600;font-size:13px}.ek .m{fill:var(--muted);font-size:11px}.ek .v{font-size:10px}\
.ek .g{stroke:var(--grid);stroke-width:1}.ek .a{stroke:var(--axis);stroke-width:1}\
.ek .w{stroke:currentColor;stroke-width:1.2;color:#1b1f24;opacity:.75}.ek text{font-variant-numeric:tabular-nums}\
@media(prefers-color-scheme:dark){.ek{fill:#e6e9ed;--s0:#9aa1aa;--s1:#e08fc0;--s2:#e9a93a;--s3:#4fa8ea;--s4:#35c39b;--s5:#f28a4b;--grid:#30363d;--axis:#6e7681;--muted:#9aa4af}.ek .w{color:#e6e9ed}}";

/// The lowest and the highest of some values; `None` of nothing.
pub fn reach(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let wider = |(low, high): (f64, f64), value| (low.min(value), high.max(value));
    let (low, high) = values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), wider);
    (low <= high).then_some((low, high))
}

/// Gives panels one y axis: decades compare only on the same one.
pub fn share_reach(panels: &mut [Panel]) {
    let reach = reach(panels.iter().filter_map(Panel::range).flat_map(|(low, high)| [low, high]));
    panels.iter_mut().for_each(|panel| panel.reach = reach);
}

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Panel {
    /// The lowest and highest value drawn, intervals too.
    fn range(&self) -> Option<(f64, f64)> {
        let points = self.series.iter().flat_map(|s| &s.points);
        let ends = points.flat_map(|p| {
            let (low, high) = p.interval.unwrap_or((p.y, p.y));
            [p.y, low, high]
        });
        reach(ends.filter(|v| v.is_finite() && (!self.log || *v > 0.0)))
    }

    /// The panel as a document of its own, in the page's style.
    pub fn svg(&self) -> String {
        let (width, height) = self.size();
        let label = escape(&format!("{}: {} over {}", self.title, self.y_title, self.x_title));
        format!(
            "<svg class=\"ek\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{}</svg>",
            self.content()
        )
    }

    fn size(&self) -> (f64, f64) {
        let width = if self.wide { 2.0 * WIDTH } else { WIDTH };
        match self.kind {
            PanelKind::Spans => (width, TOP + BOTTOM + (spans::rows(self) * ROW).max(LEAST_ROWS)),
            _ if self.wide => (width, WIDE_HEIGHT),
            _ => (width, HEIGHT),
        }
    }

    fn content(&self) -> String {
        let (width, height) = self.size();
        let (low, high) = self.reach.or_else(|| self.range()).unwrap_or((0.0, 1.0));
        let right = match self.kind {
            PanelKind::Lines => RIGHT_LINES,
            PanelKind::Scatter | PanelKind::Curves | PanelKind::Spans => 2.0 * RIGHT_BARS, // the last tick's half
            PanelKind::Bars => RIGHT_BARS,
        };
        let area = Area {
            left: LEFT,
            right: width - right,
            top: TOP,
            bottom: height - BOTTOM,
            y: Scale::of(low, high, self.log),
        };
        let mut out = text("class=\"t\"", 4.0, 15.0, &self.title);
        out += &text("class=\"m\"", 4.0, TOP - 9.0, &self.y_title);
        // rows have no scale
        let ticks = if self.kind == PanelKind::Spans { Vec::new() } else { area.y.ticks() };
        for tick in ticks {
            let y = area.y_of(tick);
            out += &area.across(y, "class=\"g\"");
            let right = "class=\"m\" text-anchor=\"end\"";
            out += &text(right, area.left - 6.0, y + 4.0, &scale::label(tick));
        }
        match self.kind {
            PanelKind::Lines => lines::draw(self, &area, &mut out),
            PanelKind::Bars => bars::draw(self, &area, &mut out),
            PanelKind::Curves => curves::draw(self, &area, &mut out),
            PanelKind::Scatter => scatter::draw(self, &area, &mut out),
            PanelKind::Spans => spans::draw(self, &area, &mut out),
        }
        out += &area.across(area.bottom, "class=\"a\"");
        out + &text(CENTRED, f64::midpoint(area.left, area.right), height - 8.0, &self.x_title)
    }
}

struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    y: Scale,
}

impl Area {
    fn y_of(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }

    fn tick(&self, x: f64, name: &str) -> String {
        text(CENTRED, x, self.bottom + 16.0, name)
    }

    fn across(&self, y: f64, attributes: &str) -> String {
        let (left, right) = (self.left, self.right);
        format!("<line {attributes} x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
    }

    fn upright(&self, x: f64, attributes: &str) -> String {
        let (top, bottom) = (self.top, self.bottom);
        format!("<line {attributes} x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>")
    }

    /// Pixels across and values, as the points of a path.
    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let points = points.map(|(x, value)| format!("{x:.1},{:.1}", self.y_of(value)));
        points.collect::<Vec<_>>().join(" ")
    }

    fn marks(&self, panel: &Panel, x_of: impl Fn(f64) -> f64) -> String {
        let all = panel.series.iter().flat_map(|s| s.points.iter().map(|p| (s.style, p)));
        all.map(|(style, point)| mark(style, x_of(point.x), self.y_of(point.y))).collect()
    }
}

const CENTRED: &str = "class=\"m\" text-anchor=\"middle\"";

fn text(attributes: &str, x: f64, y: f64, text: &str) -> String {
    format!("<text {attributes} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
}

/// Several panels as one file: as many side by side as are, in rows of four at most.
pub(crate) fn figure(title: &str, panels: &[Panel]) -> String {
    let wider = |(wide, high): (f64, f64), panel: &Panel| {
        let (own_wide, own_high) = panel.size();
        (wide.max(own_wide), high.max(own_high))
    };
    let (wide, high) = panels.iter().fold((WIDTH, 0.0), wider);
    let high = if panels.is_empty() { HEIGHT } else { high };
    let columns = match panels.len() {
        _ if panels.iter().any(|panel| panel.wide) => 1,
        0..=4 => panels.len().max(1),
        n => n.div_ceil(2).min(4),
    };
    let rows = panels.len().div_ceil(columns).max(1);
    let (width, height) = (columns as f64 * wide, rows as f64 * high + 28.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ek\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\"><title>{0}</title><style>{STYLE}\
         .ek .paper{{fill:#fff}}@media(prefers-color-scheme:dark){{.ek .paper{{fill:#0d1117}}}}</style>\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>",
        escape(title)
    );
    out += &text("class=\"t\" style=\"font-size:15px\"", 4.0, 18.0, title);
    for (n, panel) in panels.iter().enumerate() {
        let (x, y) = ((n % columns) as f64 * wide, (n / columns) as f64 * high + 28.0);
        out += &format!("<g transform=\"translate({x} {y})\">{}</g>", panel.content());
    }
    out.push_str("</svg>\n");
    out
}

/// The mark of a style: circle, square, triangle, diamond.
fn mark(style: usize, x: f64, y: f64) -> String {
    let fill = format!("fill=\"var(--s{style})\"");
    match style % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\" {fill}/>"),
        1 => format!("<path d=\"M{:.1} {:.1}h7v7h-7z\" {fill}/>", x - 3.5, y - 3.5),
        2 => format!("<path d=\"M{x:.1} {:.1}l4.4 7.6h-8.8z\" {fill}/>", y - 4.6),
        _ => format!("<path d=\"M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6z\" {fill}/>", y - 4.6),
    }
}

#[cfg(test)]
mod tests;
