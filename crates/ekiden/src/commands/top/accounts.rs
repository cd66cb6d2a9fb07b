//! The busiest accounts on the screen of `ekiden top`, one line each.

use crate::commands::status::accounts::quota_left;
use crate::print::{clean, rate};
use ekiden_proxy::observe::status::{AccountStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Row, Table};

/// Maximum number of accounts shown.
const MOST: usize = 8;
/// Lines of the screen reserved for the rest.
const OTHERS: u16 = 12;

const HEAD: [&str; 6] = ["ACCOUNT", "DOWN", "UP", "QUOTA LEFT", "CONNS", "STATE"];

/// Lines needed on a screen of `screen` lines: heading, accounts, an empty line. 0 without accounts or room.
pub(super) fn height(status: &Status, screen: u16) -> u16 {
    let count = list(status).len().min(MOST) as u16;
    let room = screen.saturating_sub(OTHERS);
    if count == 0 || room < 3 { 0 } else { (count + 2).min(room) }
}

fn list(status: &Status) -> &[AccountStatus] {
    status.sharing.as_ref().map_or(&[], |shared| &shared.accounts)
}

/// Draws as many accounts as fit.
pub(super) fn draw(frame: &mut Frame<'_>, status: &Status, area: Rect) {
    let mut busy: Vec<&AccountStatus> = list(status).iter().collect();
    // idle ones keep their order by name
    busy.sort_by_key(|account| std::cmp::Reverse(account.rate_down + account.rate_up));
    let rows = busy.into_iter().take(usize::from(area.height.saturating_sub(2))).map(row);
    let widths = [
        Constraint::Min(16),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(24),
        Constraint::Length(6),
        Constraint::Length(9),
    ];
    let head = Row::new(HEAD).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn row(account: &AccountStatus) -> Row<'static> {
    Row::new([
        clean(&account.name),
        rate(account.rate_down),
        rate(account.rate_up),
        quota_left(account),
        account.connections.to_string(),
        clean(&account.state),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::SharingStatus;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn with(count: u64) -> Status {
        let account = |n: u64| AccountStatus {
            name: format!("house-{n}"),
            state: if n == 2 { "throttle".into() } else { "fine".into() },
            rate_down: n * 1_000_000,
            connections: n,
            quota_left: (n > 1).then_some(n << 30),
            period_ends_in_seconds: (n > 2).then_some(86_400.0),
            ..AccountStatus::default()
        };
        let accounts = (1..=count).map(account).collect();
        let mut status = crate::commands::sample();
        status.sharing = Some(SharingStatus { accounts, ..SharingStatus::default() });
        status
    }

    #[test]
    fn needs_lines_only_if_they_fit() {
        let height = |count, screen| height(&with(count), screen);
        assert_eq!((height(0, 50), height(3, 50), height(100, 50)), (0, 5, 10));
        assert_eq!((height(100, 16), height(3, 14), height(3, 1)), (4, 0, 0));
    }

    #[test]
    fn lists_the_busiest_first() {
        let mut terminal = Terminal::new(TestBackend::new(84, 5)).unwrap();
        let status = with(4);
        terminal.draw(|frame| draw(frame, &status, frame.area())).unwrap();
        insta::assert_snapshot!(terminal.backend());
    }
}
