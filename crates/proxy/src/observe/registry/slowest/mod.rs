//! What holds a connection's bytes back, as far as this relay's figures show it.

mod rivals;
mod tunnel;

#[cfg(test)]
mod tests;

pub(crate) use rivals::{Rivals, TunnelShare, TunnelShares};

use crate::observe::status::{AccountStatus, ConnectionStatus, LegStatus, TunnelStatus};
use ekiden_model::units::{Rate, Span};
use tunnel::rounded;

/// Where the busier direction moves, so many bytes that wait in the other say more.
const STALLED: u32 = 16 * 1024;
/// An account that uses so much of its rate is held back by it, at whatever moment it is looked at.
const USED_UP: f64 = 0.9;

/// What is known beside a connection's own figures.
#[derive(Debug, Default)]
pub(crate) struct Around<'a> {
    /// The tunnel that carries a leg of it.
    pub(crate) tunnel: Option<&'a TunnelStatus>,
    /// The others in that tunnel.
    pub(crate) rivals: Rivals,
    /// Its account's limits and use.
    pub(crate) account: Option<&'a AccountStatus>,
    /// How long the name of its destination has been looked up, if it is.
    pub(crate) lookup: Option<Span>,
}

/// In words. Bytes that wait for a leg show that it is slower than what feeds it; where none wait, the feeding side is
/// the slower one.
pub(crate) fn slowest(connection: &ConnectionStatus, around: &Around<'_>) -> String {
    if let Some(waits) = &connection.waits {
        return format!("its account's limit: {waits}");
    }
    match connection.state.as_str() {
        "relaying" | "half-closed" => {}
        "connecting" => return connecting(connection, around),
        state => return format!("nothing: it is {state}"),
    }
    let Some(down) = is_down(connection) else { return silent(connection) };
    let rate = if down { connection.rate_down } else { connection.rate_up };
    if let Some(limit) = around.account.and_then(|account| used_up(account, down)) {
        return limit;
    }
    let (to, from) = if down { ("client", "upstream") } else { ("upstream", "client") };
    if let Some(leg) = leg(connection, to).filter(|leg| leg.unsent > 0) {
        return receiver(leg, around);
    }
    match (leg(connection, from).and_then(|leg| leg.tunnel.as_ref()), around.tunnel) {
        (Some(peer), Some(seen)) if seen.up => tunnel::out_of(peer, (seen, &around.rivals), rate),
        (Some(peer), _) => format!("the tunnel to \"{peer}\", which is lost"),
        (None, _) => format!("{}; nothing waits here", far_end(from)),
    }
}

fn leg<'a>(connection: &'a ConnectionStatus, side: &str) -> Option<&'a LegStatus> {
    connection.legs.iter().find(|leg| leg.side == side)
}

/// The direction that is meant: towards the client, or from it. `None`: nothing moves and nothing waits.
fn is_down(connection: &ConnectionStatus) -> Option<bool> {
    let waiting = |down: bool| {
        let side = if down { "client" } else { "upstream" };
        leg(connection, side).map_or(0, |leg| leg.unsent)
    };
    let down = connection.rate_down >= connection.rate_up;
    let rate = connection.rate_down.max(connection.rate_up);
    let stalled = if rate == 0 { 0 } else { STALLED };
    if waiting(down) == 0 && waiting(!down) > stalled {
        return Some(!down);
    }
    (rate > 0 || waiting(down) > 0).then_some(down)
}

fn connecting(connection: &ConnectionStatus, around: &Around<'_>) -> String {
    let waited = whole(Span::from_secs_f64(connection.idle_seconds));
    match around.lookup {
        Some(lookup) => {
            format!("its name: no name server has answered for {}", whole(lookup))
        }
        None => format!("the destination, which has not answered yet, for {waited}"),
    }
}

fn silent(connection: &ConnectionStatus) -> String {
    let upstream = leg(connection, "upstream");
    let flow = upstream.and_then(|leg| Some((leg.tunnel.as_ref()?, leg.flow?)));
    match flow {
        Some((peer, flow)) if !flow.answered => format!(
            "the relay \"{peer}\", which has not reached the destination for {}: its name, the path or the destination \
             is slow; `ekiden explain` there, or its dashboard, tells which",
            whole(Span::from_secs_f64(connection.idle_seconds))
        ),
        _ => "nothing: neither end sends, and nothing waits here".to_owned(),
    }
}

/// The account's rate, where nearly all of it is used.
fn used_up(account: &AccountStatus, down: bool) -> Option<String> {
    let (limit, rate, name) = match down {
        true => (account.limit_down?, account.rate_down, "down"),
        false => (account.limit_up?, account.rate_up, "up"),
    };
    let is_used = rate as f64 >= USED_UP * limit as f64;
    let state = match account.state.as_str() {
        "throttle" => ", to which it is slowed down since its quota is used up",
        _ => "",
    };
    is_used.then(|| {
        let [limit, rate] = [limit, rate].map(about);
        format!("its account's limit: {rate} of {limit} {name} are used{state}")
    })
}

/// The leg for which bytes wait.
fn receiver(leg: &LegStatus, around: &Around<'_>) -> String {
    if let (Some(peer), Some(seen)) = (&leg.tunnel, around.tunnel) {
        let flow = leg.flow.unwrap_or_default();
        let far = if leg.side == "client" { "its client" } else { "the destination" };
        return tunnel::into(peer, &flow, (seen, &around.rivals), far);
    }
    let bytes = rounded(leg.unsent.into());
    if leg.window_full {
        let who = if leg.side == "client" { "the client" } else { "the destination" };
        return format!(
            "{who}, which reads slowly: its receive window is full, and {bytes} wait for it"
        );
    }
    let rtt = Span::from_micros(leg.rtt_us.into());
    let lost = leg.loss.map(|loss| (loss * 1_000.0).round() / 10.0).filter(|lost| *lost > 0.0);
    let lost = lost.map_or_else(String::new, |lost| format!(", {lost} % lost"));
    format!(
        "{}, for which {bytes} wait: round trip {rtt}{lost}, {} get there",
        far_end(&leg.side),
        about(leg.delivery_rate)
    )
}

fn far_end(side: &str) -> &'static str {
    match side {
        "client" => "the client, or the path between",
        _ => "the destination, or the path between",
    }
}

fn whole(span: Span) -> Span {
    match span.as_secs() {
        0 => Span::from_millis(span.as_millis()),
        seconds => Span::from_secs(seconds),
    }
}

/// A rate by its first three digits.
fn about(rate: u64) -> Rate {
    let step = 10_u64.pow(rate.max(1).ilog10().saturating_sub(2));
    Rate::from_bits_per_second((rate + step / 2) / step * step)
}
