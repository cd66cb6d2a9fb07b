//! A connection's useful buffer, γ · λ · RTT, coupled with its partner's rate (E2-ATBT,
//! algorithms/buffers A.3 and §A.5).

use crate::units::{Rate, Share, Span};
use core::fmt;

/// γ of Reno-like senders: a saw tooth between W/2 and W peaks at 4/3 of its mean
/// (algorithms/buffers A.3).
pub const RENO: f64 = 4.0 / 3.0;
/// γ for CUBIC, which keeps 0.7 of its window: 2/1.7 (algorithms/buffers A.3).
pub const CUBIC: f64 = 1.18;

/// γ · λ · RTT in bytes, rounded up; `rate` in bytes per second.
pub fn demand(gamma: f64, rate: f64, rtt: Span) -> u64 {
    let bytes = gamma * rate * rtt.as_secs_f64();
    // a float that does not fit becomes the largest integer, one that is no number 0
    libm::ceil(bytes) as u64
}

/// Which of a connection's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Side {
    /// What is sent to the peer.
    Send,
    /// What is received from it.
    Receive,
}

impl Side {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Send, Self::Receive];
}

crate::units::named!(Side { Send = "send", Receive = "receive" });

/// Where a demand comes from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum DemandOrigin {
    /// Every buffer is the same.
    Fixed,
    /// Nothing is known yet: the size of a new connection.
    #[default]
    Initial,
    /// Equation or observation, with the numbers that went in.
    Rate {
        /// γ.
        gamma: f64,
        /// λ.
        rate: Rate,
        /// Of this connection.
        rtt: Span,
        /// The limit of λ.
        limit: Limit,
        /// Halved (below 0) or doubled so often by how full the buffer is.
        shift: i8,
    },
    /// Idle: its last demand, halved this often since.
    Idle {
        /// Halvings.
        halved: u32,
    },
}

/// The limit of a connection's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Limit {
    /// The path of this connection, with so many loss events per segment.
    Loss(Share),
    /// What was received on this connection lately, and a quarter more.
    Received,
    /// The driver knows.
    Known,
    /// The size it has, which seldom stops its sender: more would not be used.
    Unhindered,
    /// The connection at the other end of the relay, by its number: it brings, or takes, no more.
    Partner(u64),
}

impl fmt::Display for DemandOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed => f.write_str("every buffer is the same"),
            Self::Initial => f.write_str("nothing known yet, so what every connection starts with"),
            Self::Rate { gamma, rate, rtt, limit, shift } => {
                let rtt = Span::from_micros(rtt.as_micros());
                write!(f, "{gamma:.2} × {} × {rtt}, limited by {limit}", rounded(rate))?;
                match shift {
                    0 => Ok(()),
                    1.. => write!(f, "; × {}, since it was full", 1_u64 << shift.min(63)),
                    _ => {
                        let parts = 1_u64 << shift.unsigned_abs().min(63);
                        write!(f, "; 1/{parts} of it, since little of it was used")
                    }
                }
            }
            Self::Idle { halved: 0 } => f.write_str("idle, as it was"),
            Self::Idle { halved } => write!(f, "idle, halved {halved} times"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(f, "its path ({loss} lost)"),
            Self::Received => f.write_str("what it received lately"),
            Self::Unhindered => f.write_str("the size it has, which seldom stops it"),
            Self::Known => f.write_str("what is known of its path"),
            Self::Partner(id) => write!(f, "connection {id}"),
        }
    }
}

/// To three digits: λ is an estimate.
fn rounded(rate: Rate) -> Rate {
    let bits = rate.as_bits_per_second();
    let digits = bits.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(2));
    Rate::from_bits_per_second((bits / unit).saturating_mul(unit))
}

pub(super) fn rate(bytes_per_second: f64) -> Rate {
    Rate::from_bits_per_second((bytes_per_second * 8.0) as u64)
}

/// A probability as a quantity, in whole parts per million.
pub(super) fn share(part: f64) -> Share {
    let ppm = libm::round(part.clamp(0.0, 1.0) * 1e6) as u64;
    Share::from_parts_per_billion(ppm * 1_000).unwrap_or(Share::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_lambda_rtt() {
        // algorithms/buffers A.3's last column, times γ
        assert_eq!(demand(1.0, 396_270.9, Span::from_millis(100)), 39_628);
        assert_eq!(demand(RENO, 396_270.9, Span::from_millis(100)), 52_837);
        assert_eq!(demand(CUBIC, 6_316_300.8, Span::from_millis(20)), 149_065);
        assert_eq!(demand(1.0, f64::INFINITY, Span::from_millis(1)), u64::MAX);
        assert_eq!(demand(1.0, f64::NAN, Span::from_millis(1)), 0);
    }
}
