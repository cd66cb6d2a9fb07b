//! `ekiden top`: a live screen of accounts and connections.

mod accounts;

use crate::commands::status::{budget_figure, leg};
use crate::commands::{client, with_runtime};
use crate::print::{clean, percent, rate, rtt, seconds, size, traffic};
use crate::{cli, exit, print};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ekiden_proxy::observe::status::{ConnectionStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Shows connections until `q`. Returns the exit code.
pub(crate) fn run(args: &cli::Top) -> u8 {
    if !std::io::stdout().is_terminal() {
        print::warn("ekiden top: standard output is not a terminal; `ekiden status` prints once\n");
        return exit::USAGE;
    }
    with_runtime("top", |runtime| {
        let ask =
            || runtime.block_on(client::status(args.socket.as_deref())).map(|(status, _)| status);
        // ask before switching to the screen: an error belongs on the plain terminal
        screen(ask()?, ask, args.interval.into())?;
        Ok::<_, Box<dyn Error>>(exit::FINE)
    })
}

/// Restores the terminal on every exit; after a panic, ratatui's hook does.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn screen<E: std::fmt::Display>(
    first: Status,
    mut ask: impl FnMut() -> Result<Status, E>,
    interval: Duration,
) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    let mut view = View::new(first, Instant::now());
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if interrupt => return Ok(()),
                    KeyCode::Down | KeyCode::Char('j') => view.table.select_next(),
                    KeyCode::Up | KeyCode::Char('k') => view.table.select_previous(),
                    KeyCode::Char(key) => view.sort_by(key),
                    _ => {}
                }
            }
        } else {
            match ask() {
                Ok(status) => view.take(status, Instant::now()),
                Err(error) => view.lost = Some(error.to_string()),
            }
            next = Instant::now() + interval;
        }
    }
}

/// The sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Rate,
    Bytes,
    Age,
    Idle,
}

struct View {
    status: Status,
    taken: Instant,
    /// Bits per second since the last refresh, by connection.
    rates: BTreeMap<u64, u64>,
    sort: Sort,
    ascending: bool,
    lost: Option<String>,
    table: TableState,
}

fn bytes(connection: &ConnectionStatus) -> u64 {
    connection.bytes_up.saturating_add(connection.bytes_down)
}

impl View {
    fn new(status: Status, now: Instant) -> Self {
        Self {
            status,
            taken: now,
            rates: BTreeMap::new(),
            sort: Sort::Rate,
            ascending: false,
            lost: None,
            table: TableState::default(),
        }
    }

    /// Takes the next status.
    fn take(&mut self, status: Status, now: Instant) {
        let before: BTreeMap<u64, u64> =
            self.status.connections.iter().map(|c| (c.id, bytes(c))).collect();
        let passed = now.saturating_duration_since(self.taken).as_secs_f64().max(0.001);
        self.rates = status
            .connections
            .iter()
            .map(|c| {
                let moved = bytes(c).saturating_sub(before.get(&c.id).copied().unwrap_or(0));
                (c.id, (moved as f64 * 8.0 / passed) as u64)
            })
            .collect();
        (self.status, self.taken, self.lost) = (status, now, None);
    }

    fn sort_by(&mut self, key: char) {
        let sort = match key {
            'r' => Sort::Rate,
            'b' => Sort::Bytes,
            'a' => Sort::Age,
            'i' => Sort::Idle,
            _ => return,
        };
        self.ascending = sort == self.sort && !self.ascending;
        self.sort = sort;
    }

    fn rate(&self, connection: &ConnectionStatus) -> u64 {
        self.rates.get(&connection.id).copied().unwrap_or(0)
    }

    fn sorted(&self) -> Vec<&ConnectionStatus> {
        let mut list: Vec<_> = self.status.connections.iter().collect();
        list.sort_by(|a, b| {
            let order = match self.sort {
                Sort::Rate => self.rate(b).cmp(&self.rate(a)),
                Sort::Bytes => bytes(b).cmp(&bytes(a)),
                Sort::Age => b.age_seconds.total_cmp(&a.age_seconds),
                Sort::Idle => b.idle_seconds.total_cmp(&a.idle_seconds),
            };
            let order = if self.ascending { order.reverse() } else { order };
            order.then(a.id.cmp(&b.id))
        });
        list
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let status = &self.status;
        let shown = accounts::height(status, frame.area().height);
        let parts = [
            Constraint::Length(3),
            Constraint::Length(shown),
            Constraint::Min(1),
            Constraint::Length(1),
        ];
        let [head, middle, body, foot] = Layout::vertical(parts).areas(frame.area());
        if shown > 0 {
            accounts::draw(frame, status, middle);
        }
        let budget = |b: &ekiden_proxy::observe::status::BudgetStatus| {
            let number = |n| budget_figure(b, n);
            format!("{} {}/{}", clean(&b.name), number(b.used), number(b.limit))
        };
        let budgets: Vec<_> = status.budgets.iter().map(budget).collect();
        let resting = status.upstreams.iter().filter(|u| !u.available).count();
        let total: u64 = self.rates.values().sum();
        let tunnel = |t: &ekiden_proxy::observe::status::TunnelStatus| match t.up {
            true => format!(
                "peer {} {} of {}, {:.0} ms, {} queued, {} flows",
                clean(&t.peer),
                rate(t.rate),
                rate(t.allotted),
                t.rtt_us / 1e3,
                size(t.waiting),
                t.flows
            ),
            false => format!("peer {} down", clean(&t.peer)),
        };
        let tunnels: Vec<_> = status.tunnels.iter().map(tunnel).collect();
        let lines = vec![
            Line::from(format!(
                "{}  up {}  {} connections  {}  upstreams {} ({resting} unreachable)",
                clean(&status.name),
                seconds(status.uptime_seconds),
                status.connections.len(),
                rate(total),
                status.upstreams.len(),
            )),
            Line::from(budgets.join("  ")),
            Line::from(tunnels.join("   ")),
        ];
        frame.render_widget(Paragraph::new(lines), head);
        let shown = columns(body.width);
        let pick = |cells: [String; COLUMNS.len()]| {
            let cells = cells.into_iter().enumerate();
            Row::new(cells.filter_map(|(at, cell)| shown[at].then_some(cell)))
        };
        let rows: Vec<Row<'_>> = self.sorted().into_iter().map(|c| pick(self.row(c))).collect();
        let names = pick(COLUMNS.map(|(name, ..)| name.to_owned()));
        let widths =
            COLUMNS.iter().zip(shown).filter(|(_, shown)| *shown).map(|((name, width, _), _)| {
                // the destination takes what is left
                if *name == "DESTINATION" {
                    Constraint::Min(*width)
                } else {
                    Constraint::Length(*width)
                }
            });
        let widths: Vec<_> = widths.collect();
        let table = Table::new(rows, widths)
            .header(names.style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, body, &mut self.table);
        let by = match self.sort {
            Sort::Rate => "rate",
            Sort::Bytes => "bytes",
            Sort::Age => "age",
            Sort::Idle => "idle",
        };
        let arrow = if self.ascending { "ascending" } else { "descending" };
        let text = match &self.lost {
            Some(error) => format!("no answer: {}", clean(error)),
            None => format!("by {by}, {arrow}   r rate  b bytes  a age  i idle  q quit"),
        };
        frame.render_widget(Paragraph::new(text), foot);
    }

    fn row(&self, c: &ConnectionStatus) -> [String; COLUMNS.len()] {
        let leg = |side| leg(c, side);
        let figure = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            c.id.to_string(),
            clean(&c.protocol),
            clean(&c.class),
            figure(c.destination.as_deref().map(clean)),
            figure(leg("client").map(|leg| rtt(leg.rtt_us))),
            figure(leg("upstream").map(|leg| rtt(leg.rtt_us))),
            figure(leg("upstream").and_then(|leg| leg.loss).map(percent)),
            rate(self.rate(c)),
            traffic(bytes(c)),
            seconds(c.idle_seconds),
            seconds(c.age_seconds),
        ]
    }
}

/// Heading, width, and the order in which narrow screens omit it, highest first (0: never).
const COLUMNS: [(&str, u16, u8); 11] = [
    ("ID", 7, 2),
    ("PROTOCOL", 8, 3),
    ("CLASS", 11, 4),
    ("DESTINATION", 16, 0),
    ("CLIENT-RTT", 10, 6),
    ("RTT", 8, 0),
    ("LOSS", 7, 5),
    ("RATE", 12, 0),
    ("BYTES", 9, 0),
    ("IDLE", 10, 1),
    ("AGE", 10, 7),
];

/// Which columns fit.
fn columns(room: u16) -> [bool; COLUMNS.len()] {
    let mut shown = [true; COLUMNS.len()];
    loop {
        let used = COLUMNS.iter().zip(shown).filter(|(_, shown)| *shown);
        // one blank between two
        let width: u16 = used.map(|((_, width, _), _)| width + 1).sum();
        let most =
            COLUMNS.iter().enumerate().filter(|(at, (_, _, order))| shown[*at] && *order > 0);
        match most.max_by_key(|(_, (_, _, order))| *order) {
            Some((at, _)) if width > room + 1 => shown[at] = false,
            _ => return shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn narrow_screens_omit_whole_columns() {
        for room in 0..200 {
            let width = |shown: [bool; COLUMNS.len()]| -> u16 {
                let widths = COLUMNS.iter().zip(shown).filter(|(_, shown)| *shown);
                widths.map(|((_, width, _), _)| width + 1).sum()
            };
            let shown = columns(room);
            let least = COLUMNS.map(|(_, _, order)| order == 0);
            assert!(width(shown) <= room + 1 || shown == least, "{room}");
        }
        assert_eq!(columns(120), [true; COLUMNS.len()]);
    }

    fn ids(view: &View) -> Vec<u64> {
        view.sorted().iter().map(|c| c.id).collect()
    }

    #[test]
    fn keys_sort_and_reverse_the_order() {
        let start = Instant::now();
        let mut view = View::new(sample(), start);
        let mut later = sample();
        later.connections[1].bytes_down += 1_000_000;
        view.take(later, start + Duration::from_secs(1));
        assert_eq!(view.rate(&view.status.connections[1]), 8_000_000);
        assert_eq!(ids(&view), [901, 17, 1204]);
        view.sort_by('b');
        assert_eq!(ids(&view), [17, 901, 1204]);
        view.sort_by('b');
        assert_eq!(ids(&view), [1204, 901, 17]);
        view.sort_by('a');
        assert_eq!(ids(&view), [901, 17, 1204]);
        view.sort_by('i');
        assert_eq!(ids(&view), [901, 1204, 17]);
    }

    #[test]
    fn draws_at_any_size() {
        let mut view = View::new(sample(), Instant::now());
        for (width, height) in [(1, 1), (20, 3), (80, 24)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
        let mut terminal = Terminal::new(TestBackend::new(120, 9)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        insta::assert_snapshot!(terminal.backend());
    }

    #[test]
    fn budgets_of_memory_have_a_unit() {
        let mut status = sample();
        status.budgets[0].name = "sessions".to_owned();
        (status.budgets[0].used, status.budgets[0].limit) = (0, 201_326_592);
        let mut terminal = Terminal::new(TestBackend::new(120, 9)).unwrap();
        let mut view = View::new(status, Instant::now());
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let screen = terminal.backend().to_string();
        assert!(screen.contains("sessions 0 B/192 MiB"), "{screen}");
    }
}
