//! TCPs of certain programs and years, to compare with published results. ns-2's
//! `tcl/lib/ns-default.tcl` dates its defaults: RFC 2988 and a tick of 10 ms since 2002-03, a
//! minimum of 200 ms since 2004-10, whole-segment arithmetic until 2006-01. The values of 2.1b9 are
//! from memory, and marked so.

use super::{
    Counting, Decrease, HandshakeConfig, Offload, Repair, Sampling, Selective, SenderConfig,
    Variant,
};
use crate::control::congestion::{
    self, Algorithm, Counting as Growth, CubicConfig, Cut, SlowStart,
};
use crate::network::rto::{Estimator, Floor, RtoConfig};
use crate::units::Span;

/// Whose TCP, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// ns-2.1b9 (2002): a minimum RTO of 1 s (from memory), whole segments.
    Ns21b9,
    /// ns-2.28 (2005): a minimum RTO of 200 ms, whole segments.
    Ns228,
    /// ns-2.35 (2011).
    Ns235,
    /// The RFCs of today, literally.
    Rfc,
    /// Linux 6: CUBIC, SACK, RACK-TLP, timestamps, 10 segments at first.
    Linux,
}

/// Which repair, where the era leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Reno.
    Reno,
    /// NewReno.
    NewReno,
    /// Selective acknowledgements.
    Sack,
}

impl Era {
    /// By name: `ns-2.1b9`, `ns-2.28`, `ns-2.35`, `rfc`, `linux`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ns-2.1b9" => Self::Ns21b9,
            "ns-2.28" => Self::Ns228,
            "ns-2.35" => Self::Ns235,
            "rfc" => Self::Rfc,
            "linux" => Self::Linux,
            _ => return None,
        })
    }

    const fn is_ns2(self) -> bool {
        matches!(self, Self::Ns21b9 | Self::Ns228 | Self::Ns235)
    }

    /// How connections are opened.
    pub fn opening(self) -> HandshakeConfig {
        if self.is_ns2() {
            // rtxcur_init_; up to maxrto_, and never given up
            let (initial, most) = (Span::from_secs(3), Span::from_secs(60));
            HandshakeConfig { initial, most, again: u32::MAX }
        } else {
            HandshakeConfig::default()
        }
    }

    /// A sender of this era. `window`: the receiver's, in segments, ns-2's first threshold.
    /// `phase`: position within a tick of a 10 ms clock, drawn for each connection.
    pub fn sender(self, flavour: Flavour, mss: u32, window: f64, phase: Span) -> SenderConfig {
        SenderConfig {
            mss,
            congestion: self.congestion(window),
            repair: self.repair(flavour),
            rto: self.rto(phase),
            sampling: if self == Self::Linux {
                Sampling::Timestamps
            } else {
                Sampling::OnePerWindow
            },
            decrease: if self == Self::Rfc { Decrease::FromFlight } else { Decrease::FromWindow },
            buffer: u64::MAX,
            offload: Offload::None,
            nagle: !self.is_ns2(),
            restart_after_idle: true,
            reset_rto_after_idle: false,
            repeated_timeout_keeps_threshold: !self.is_ns2(),
            // Linux paces for BBR and behind `fq` only. Paced, HyStart took the spread for a full
            // path: 22 Mbit/s where a kernel had 37
            pacing: None,
        }
    }

    fn congestion(self, window: f64) -> congestion::Config {
        let ns2 = self.is_ns2();
        congestion::Config {
            algorithm: if self == Self::Linux {
                Algorithm::Cubic(CubicConfig::default())
            } else {
                Algorithm::Reno
            },
            initial_window: if ns2 { 2.0 } else { 10.0 },
            initial_threshold: if ns2 { window } else { f64::INFINITY },
            // Linux counts all that an ACK acknowledges, however much
            counting: match self {
                Self::Linux => Growth::Bytes { limit: f64::INFINITY },
                Self::Rfc => Growth::Bytes { limit: 2.0 },
                _ => Growth::PerAck,
            },
            cut: match self {
                Self::Ns21b9 | Self::Ns228 => Cut::Both,
                Self::Ns235 => Cut::Threshold,
                Self::Rfc | Self::Linux => Cut::Neither,
            },
            slow_start: if self == Self::Linux { SlowStart::HyStart } else { SlowStart::Standard },
            grow_only_when_limited: !ns2,
        }
    }

    fn repair(self, flavour: Flavour) -> Repair {
        let ns2 = self.is_ns2();
        let linux = self == Self::Linux;
        let variant = match flavour {
            Flavour::Reno => Variant::Reno,
            Flavour::NewReno => Variant::NewReno,
            Flavour::Sack if ns2 => return Repair::Piping,
            Flavour::Sack => {
                return Repair::Selective(Selective {
                    rack: linux,
                    tail_probe: linux,
                    proportional: linux,
                    limited_transmit: true,
                    f_rto: linux,
                });
            }
        };
        Repair::Counting(Counting {
            variant,
            limited_transmit: self != Self::Ns21b9,
            careful: true,
            ack_heuristic: !ns2,
            partial_deflation: true,
            impatient: true,
            exit_to_flight: !ns2 && variant == Variant::NewReno,
            burst: (ns2 && variant == Variant::NewReno).then_some(2),
            f_rto: linux,
        })
    }

    fn rto(self, phase: Span) -> RtoConfig {
        let base = RtoConfig::default();
        match self {
            Self::Rfc => base,
            Self::Linux => RtoConfig {
                estimator: Estimator::Linux,
                floor: Floor::Variance,
                minimum: Span::from_millis(200),
                maximum: Span::from_secs(120),
                granularity: Span::from_millis(1),
                ..base
            },
            Self::Ns21b9 | Self::Ns228 | Self::Ns235 => RtoConfig {
                estimator: Estimator::Ticks { tick: Span::from_millis(10), phase },
                initial: Span::from_secs(3),
                minimum: Span::from_millis(if self == Self::Ns21b9 { 1000 } else { 200 }),
                maximum: Span::from_secs(60),
                most_backoff: 1 << 31,
                ..base
            },
        }
    }
}
