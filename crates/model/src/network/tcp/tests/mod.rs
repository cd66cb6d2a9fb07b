//! Senders and receivers by script, an RFC's paragraph at a time; and both together by chance.

mod laws;
mod receivers;
mod repair;
mod script;
mod selective;
mod timers;

use super::preset::{Era, Flavour};
use super::{Decrease, Repair, Sampling, SenderConfig};
use crate::control::congestion::{self, Algorithm, Counting as Growth, Cut, SlowStart};
use crate::network::rto::RtoConfig;
use crate::testing::*;

/// Segments of 1,000 bytes, Reno, ten at first, nothing else than what the RFCs ask for.
fn plain(flavour: Flavour) -> SenderConfig {
    SenderConfig {
        congestion: congestion::Config {
            algorithm: Algorithm::Reno,
            initial_window: 10.0,
            initial_threshold: f64::INFINITY,
            counting: Growth::PerAck,
            cut: Cut::Neither,
            slow_start: SlowStart::Standard,
            grow_only_when_limited: false,
        },
        sampling: Sampling::OnePerWindow,
        decrease: Decrease::FromFlight,
        nagle: false,
        rto: RtoConfig { granularity: ms(1), ..RtoConfig::default() },
        ..Era::Rfc.sender(flavour, 1000, f64::INFINITY, Span::ZERO)
    }
}

/// New Reno as [`plain`], changed.
fn changed(change: impl FnOnce(&mut SenderConfig)) -> SenderConfig {
    let mut config = plain(Flavour::NewReno);
    change(&mut config);
    config
}

/// The same, with its repair changed.
fn selective(change: impl FnOnce(&mut super::Selective)) -> SenderConfig {
    let mut config = plain(Flavour::Sack);
    if let Repair::Selective(selective) = &mut config.repair {
        change(selective);
    }
    config
}

/// The same, with its repair changed.
fn counting(flavour: Flavour, change: impl FnOnce(&mut super::Counting)) -> SenderConfig {
    let mut config = plain(flavour);
    if let Repair::Counting(counting) = &mut config.repair {
        change(counting);
    }
    config
}

/// RACK (RFC 8985), and no limited transmit.
fn rack() -> SenderConfig {
    selective(|s| {
        s.rack = true;
        s.limited_transmit = false;
    })
}
