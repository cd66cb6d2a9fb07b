//! `ekiden explain`: what holds an account or a connection back, and why a connection has its class, route and buffers.

mod account;

use super::status::came_from;
use super::{client, with_runtime};
use crate::cli;
use crate::print::{self, clean, percent, rate, rtt, seconds, size};
use ekiden_proxy::observe::status::{Explanation, GrantStatus, LegStatus};
use hyper::body::Bytes;
use std::error::Error;

/// Asks the daemon and prints. Returns the exit code.
pub(crate) fn run(args: &cli::Explain) -> u8 {
    with_runtime("explain", |runtime| {
        let (socket, what) = (args.socket.as_deref(), args.what.as_str());
        let (text, document) = match what.parse::<u64>() {
            Ok(number) => {
                let (found, document) = runtime.block_on(client::explain(socket, number))?;
                (found.map(|found| render(&found)), document)
            }
            Err(_) => (None, Bytes::new()),
        };
        // an account may be called by a number, too
        let (text, document) = match text {
            Some(text) => (text, document),
            None => {
                let (found, document) = runtime.block_on(client::explain_account(socket, what))?;
                let none = || {
                    format!(
                        "no account, peer or connection \"{}\" now; `ekiden status` lists them",
                        clean(what)
                    )
                };
                (found.map(|found| account::render(&found)).ok_or_else(none)?, document)
            }
        };
        let text =
            if args.json { format!("{}\n", String::from_utf8_lossy(&document)) } else { text };
        Ok::<_, Box<dyn Error>>(print::out(&text))
    })
}

/// The explanation as text.
pub(crate) fn render(explanation: &Explanation) -> String {
    let connection = &explanation.connection;
    let mut out = format!(
        "connection {}: {} from {} to {}, {} for {}\n",
        connection.id,
        clean(&connection.protocol),
        came_from(connection),
        connection.destination.as_deref().map_or_else(|| "-".to_owned(), clean),
        clean(&connection.state),
        seconds(connection.age_seconds),
    );
    if let Some(account) = &connection.account {
        out.push_str(&format!("account: {}\n", clean(account)));
    }
    out.push_str(&format!("class: {}\n", clean(&explanation.class)));
    out.push_str(&format!("route: {}\n", clean(&explanation.route)));
    out.push_str(&format!("limits: {}\n", clean(&explanation.limits)));
    let (down, up) = (connection.rate_down, connection.rate_up);
    out.push_str(&format!("rate: {} down, {} up, over two seconds\n", rate(down), rate(up)));
    out.push_str(&format!("held back by: {}\n", clean(&explanation.slowest)));
    out.push_str(&format!("eviction: {}\n", clean(&explanation.idle)));
    for leg in &explanation.legs {
        let figures = connection.legs.iter().find(|one| one.side == leg.side);
        out.push_str(&format!("\n{} leg", clean(&leg.side)));
        if let Some(figures) = figures {
            out.push_str(&kernel(figures));
        }
        out.push('\n');
        for buffer in &leg.buffers {
            out.push_str(&line(buffer, figures));
        }
    }
    out
}

/// The kernel's figures of a leg.
fn kernel(leg: &LegStatus) -> String {
    let lost = leg.loss.map_or_else(String::new, |loss| format!(", {} lost", percent(loss)));
    if let Some(peer) = &leg.tunnel {
        return format!(
            " \"{}\" through the tunnel to \"{}\", {}: RTT {}{lost}, sends at {} now, all its flows together; {} of this one wait",
            clean(&leg.profile),
            clean(peer),
            clean(&leg.state),
            rtt(leg.rtt_us),
            rate(leg.delivery_rate),
            size(leg.unsent.into()),
        );
    }
    let peer = leg.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
    // its share of a held rate is its pacing rate
    let held =
        leg.options.iter().find(|option| option.option == "rate" && option.refused.is_none());
    let part = held.zip(leg.pacing_rate).map_or_else(String::new, |(held, part)| {
        format!(", may send {} of its leg's {}", rate(part), clean(&held.asked))
    });
    let tls = leg.tls.as_ref().map_or_else(String::new, |tls| format!(", {}", clean(tls)));
    format!(
        " \"{}\" to {peer}{tls}: {}, RTT {}, {} delivered, {} retransmitted{lost}{part}",
        clean(&leg.profile),
        clean(&leg.congestion),
        rtt(leg.rtt_us),
        rate(leg.delivery_rate),
        leg.retransmits
    )
}

/// One buffer: its size, who sets it, its demand and why.
fn line(buffer: &GrantStatus, leg: Option<&LegStatus>) -> String {
    let now =
        leg.map(|leg| if buffer.side == "send" { leg.send_buffer } else { leg.receive_buffer });
    let mut out = format!(
        "  {} buffer: {}, {}\n",
        clean(&buffer.side),
        now.map_or_else(|| "-".to_owned(), |now| size(now.into())),
        clean(&buffer.how)
    );
    if let (Some(grant), Some(given)) = (buffer.grant, buffer.given) {
        out.push_str(&format!("    granted {}, the kernel gave {}\n", size(grant), size(given)));
    }
    match buffer.demand {
        Some(demand) => {
            out.push_str(&format!("    demand: {}, by {}\n", size(demand), clean(&buffer.why)));
        }
        None => out.push_str(&format!("    {}\n", clean(&buffer.why))),
    }
    if let Some(refused) = &buffer.refused {
        out.push_str(&format!("    {}\n", clean(refused)));
    }
    out
}

#[cfg(test)]
pub(crate) fn sample() -> Explanation {
    serde_json::from_str(include_str!("../../../tests/explain.json")).unwrap()
}

/// An account with one connection.
#[cfg(test)]
pub(crate) fn sample_account() -> ekiden_proxy::observe::status::AccountExplanation {
    account::sample()
}

/// A daemon with only connection 7.
#[cfg(test)]
pub(crate) fn sample_of_seven(connection: u64) -> Option<Explanation> {
    (connection == 7).then(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_demand_grant_and_reason() {
        insta::assert_snapshot!(render(&sample()));
    }

    #[test]
    fn a_leg_within_tls_says_so() {
        let mut explanation = sample();
        explanation.connection.legs[1].tls = Some("TLS 1.3, TLS13_AES_256_GCM_SHA384".to_owned());
        let text = render(&explanation);
        assert!(text.contains("198.51.100.9:3128, TLS 1.3, TLS13_AES_256_GCM_SHA384: "), "{text}");
    }

    #[test]
    fn a_leg_within_a_tunnel_shows_the_tunnel() {
        let mut explanation = sample();
        let leg = &mut explanation.connection.legs[1];
        leg.tunnel = Some("shore".to_owned());
        leg.state = "up".to_owned();
        leg.rtt_us = 603_000;
        let text = render(&explanation);
        let shown =
            "upstream leg \"sea\" through the tunnel to \"shore\", up: RTT 603 ms, 0.02 % lost";
        assert!(text.contains(shown), "{text}");
        assert!(!text.contains("198.51.100.9"), "{text}");
    }
}
