//! The households on the screen of `ekiden top`: those that move most, a line each.

use crate::status::{clean, rate, seconds, size};
use ekiden_proxy::status::{HouseholdStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Row, Table};

/// The most that are shown.
const MOST: usize = 8;
/// Lines of the screen that are left to everything else.
const OTHERS: u16 = 12;

const HEAD: [&str; 6] = ["HOUSEHOLD", "DOWN", "UP", "QUOTA LEFT", "CONNS", "STATE"];

/// How many lines it takes on a screen of so many: a head, the households, an empty one. None where there are none, or
/// no room.
pub(super) fn height(status: &Status, screen: u16) -> u16 {
    let count = list(status).len().min(MOST) as u16;
    let room = screen.saturating_sub(OTHERS);
    if count == 0 || room < 3 { 0 } else { (count + 2).min(room) }
}

fn list(status: &Status) -> &[HouseholdStatus] {
    status.households.as_ref().map_or(&[], |shared| &shared.households)
}

/// Draws as many as there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, status: &Status, area: Rect) {
    let mut busy: Vec<&HouseholdStatus> = list(status).iter().collect();
    // those at rest stay where they are, by name
    busy.sort_by_key(|household| std::cmp::Reverse(household.rate_down + household.rate_up));
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

fn row(household: &HouseholdStatus) -> Row<'static> {
    let left = match (household.quota_left, household.period_ends_in_seconds) {
        (None, _) => "-".to_owned(),
        (Some(left), None) => size(left),
        (Some(left), Some(ends)) => format!("{} for {}", size(left), seconds(ends)),
    };
    Row::new([
        clean(&household.name),
        rate(household.rate_down),
        rate(household.rate_up),
        left,
        household.connections.to_string(),
        clean(&household.state),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::status::HouseholdsStatus;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn with(count: u64) -> Status {
        let household = |n: u64| HouseholdStatus {
            name: format!("house-{n}"),
            state: if n == 2 { "slower".into() } else { "fine".into() },
            rate_down: n * 1_000_000,
            connections: n,
            quota_left: (n > 1).then_some(n << 30),
            period_ends_in_seconds: (n > 2).then_some(86_400.0),
            ..HouseholdStatus::default()
        };
        let households = (1..=count).map(household).collect();
        let mut status = crate::status::sample();
        status.households = Some(HouseholdsStatus { households, ..HouseholdsStatus::default() });
        status
    }

    #[test]
    fn takes_room_only_where_there_is_some() {
        let height = |count, screen| height(&with(count), screen);
        assert_eq!((height(0, 50), height(3, 50), height(100, 50)), (0, 5, 10));
        assert_eq!((height(100, 16), height(3, 14), height(3, 1)), (4, 0, 0));
    }

    #[test]
    fn the_busiest_come_first() {
        let mut terminal = Terminal::new(TestBackend::new(84, 5)).unwrap();
        let status = with(4);
        terminal.draw(|frame| draw(frame, &status, frame.area())).unwrap();
        insta::assert_snapshot!(terminal.backend());
    }
}
