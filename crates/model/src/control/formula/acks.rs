//! Acknowledgements' bandwidth on the return path (RFC 3449 §2; the asymmetric study).

use crate::units::{Bytes, Rate};

/// ACKs of a download.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AckStream {
    /// Of the packets downwards, as the downlink counts them (IP).
    pub mtu: Bytes,
    /// Of an ACK, as the uplink counts it: 40 (IP, TCP), 52 with time stamps, 66 with Ethernet's header.
    pub ack: Bytes,
    /// Packets that one ACK answers, b; above 0.
    pub packets_per_ack: f64,
}

impl AckStream {
    /// ACKs per second of a full downlink: D/(8·MTU·b).
    pub fn per_second(&self, down: Rate) -> f64 {
        down.as_bits_per_second() as f64 / (8.0 * bytes(self.mtu) * self.packets_per_ack)
    }

    /// The uplink that a downlink needs to be full: D·L/(b·MTU), rounded to the nearest bit/s.
    pub fn uplink(&self, down: Rate) -> Rate {
        rate(self.per_second(down) * 8.0 * bytes(self.ack))
    }

    /// Payload per second where ACKs limit: b·MSS·U/L.
    pub fn goodput(&self, mss: Bytes, up: Rate) -> Rate {
        rate(up.as_bits_per_second() as f64 * self.packets_per_ack * bytes(mss) / bytes(self.ack))
    }
}

fn bytes(size: Bytes) -> f64 {
    size.as_u64() as f64
}

/// A number too large or none becomes the nearest rate there is.
fn rate(bits_per_second: f64) -> Rate {
    Rate::from_bits_per_second(libm::round(bits_per_second) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: AckStream =
        AckStream { mtu: Bytes::new(1_500), ack: Bytes::new(66), packets_per_ack: 2.0 };
    const JUMBO: AckStream =
        AckStream { mtu: Bytes::new(9_000), ack: Bytes::new(66), packets_per_ack: 1.0 };

    fn mbit(n: f64) -> Rate {
        Rate::from_bits_per_second((n * 1e6) as u64)
    }

    fn rounded(rate: Rate, decimals: i32) -> f64 {
        let scale = 10_f64.powi(decimals);
        (rate.as_bits_per_second() as f64 / 1e6 * scale).round() / scale
    }

    #[test]
    fn uplinks_as_computed_and_as_seed_3_measured_them() {
        // algorithms/asymmetric D.3: down; model, table and error in % for MTU 1500; the same for 9000
        for (down, normal, jumbo) in [
            (100.0, (2.20, 2.5, -12.0), (0.73, 0.7, 5.0)),
            (200.0, (4.40, 5.0, -12.0), (1.47, 1.3, 13.0)),
            (300.0, (6.60, 7.0, -6.0), (2.20, 1.9, 16.0)),
            (400.0, (8.80, 9.0, -2.0), (2.93, 2.7, 9.0)),
            (500.0, (11.00, 11.0, 0.0), (3.67, 3.6, 2.0)),
        ] {
            for (acks, (model, table, error)) in [(NORMAL, normal), (JUMBO, jumbo)] {
                let told = acks.uplink(mbit(down));
                assert_eq!(rounded(told, 2), model, "{down}, {acks:?}");
                let off = told.as_bits_per_second() as f64 / (table * 1e6) - 1.0;
                assert_eq!((off * 100.0).round(), error, "{down}, {acks:?}");
            }
        }
        // and at 1000 down
        assert_eq!(rounded(NORMAL.uplink(mbit(1_000.0)), 1), 22.0);
        assert_eq!(rounded(JUMBO.uplink(mbit(1_000.0)), 1), 7.3);
    }

    /// The asymmetric study's table: down, up with 9000 and with 1500, in Mbit/s.
    const MEASURED: [(f64, f64, f64); 5] = [
        (100.0, 0.7, 2.5),
        (200.0, 1.3, 5.0),
        (300.0, 1.9, 7.0),
        (400.0, 2.7, 9.0),
        (500.0, 3.6, 11.0),
    ];

    #[test]
    fn seed_3_s_acks_are_66_bytes_for_two_packets_of_1500_or_one_of_9000() {
        // algorithms/asymmetric D.3: root of the mean square error over both columns, in %
        for (ack, normal, jumbo, expected) in [
            (66, 2.0, 1.0, 9.0),
            (40, 1.0, 1.0, 26.0),
            (52, 2.0, 1.0, 21.0),
            (78, 2.0, 1.0, 22.0),
            (84, 2.0, 2.0, 26.0),
            (66, 2.0, 2.0, 33.0),
        ] {
            let off = |(down, up, packets_per_ack, mtu): (f64, f64, f64, Bytes)| {
                let acks = AckStream { mtu, ack: Bytes::new(ack), packets_per_ack };
                let error = acks.uplink(mbit(down)).as_bits_per_second() as f64 / (up * 1e6) - 1.0;
                error * error
            };
            let sum: f64 = MEASURED
                .iter()
                .map(|(down, nine, fifteen)| {
                    off((*down, *nine, jumbo, JUMBO.mtu))
                        + off((*down, *fifteen, normal, NORMAL.mtu))
                })
                .sum();
            let rms = (sum / 10.0).sqrt() * 100.0;
            assert!((rms - expected).abs() < 0.51, "{ack}, {normal}, {jumbo}: {rms}");
        }
    }

    #[test]
    fn goodput_is_the_downlink_less_its_headers() {
        // 2 · 1448 payload bytes for each ACK of 66
        let goodput = NORMAL.goodput(Bytes::new(1_448), mbit(1.0));
        assert_eq!(goodput, Rate::from_bits_per_second(43_878_788));
        // the downlink whose ACKs are 1 Mbit/s: 1,500 bytes for each 1,448
        let share = goodput.as_bits_per_second() as f64;
        let down = Rate::from_bits_per_second((share * 1_500.0 / 1_448.0) as u64);
        assert!((rounded(NORMAL.uplink(down), 3) - 1.0).abs() < 1e-7);
    }
}
