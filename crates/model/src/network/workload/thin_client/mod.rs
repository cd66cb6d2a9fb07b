//! Screen updates of a remote desktop: a two-state system of interactive and bulk flows.
//!
//! The server answers each key and click with one packet (interactive) or several (bulk): m data
//! units of n full segments and a rest. After an interactive flow another follows with probability
//! α, after a bulk one with β. A pause above [`THRESHOLD`] separates flows, as [`super::flows`]
//! expects. The thin-client study gives α, β, Table 1 and the shape of a data unit; the
//! distributions here are chosen to have Table 1's means. No published figure fixes the burstiness
//! of the pauses (σ).

mod check;
#[cfg(test)]
mod tests;

use super::distributions::{PowerLaw, exponential, happens, log_normal, uniform};
use super::flows::{FlowKind, Flows, Summary, THRESHOLD, Totals};
use crate::rng::Rng;
use crate::units::{Span, Time};
use alloc::vec::Vec;
pub use check::{Refused, WorkloadError};

/// Figures of the traces (the thin-client study, §2.1 and Table 1): means of about 100 traces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// Length of a trace.
    pub duration: Span,
    /// Of the interactive flows.
    pub interactive: Totals,
    /// Of the bulk flows.
    pub bulk: Totals,
    /// P(interactive after interactive), connections from the intranet.
    pub alpha: f64,
    /// P(bulk after bulk), the same.
    pub beta: f64,
}

/// The thin-client study, Table 1.
pub const TABLE_1: Published = Published {
    duration: Span::from_secs(300),
    interactive: Totals { flows: 934, packets: 934, bytes: 128_188 },
    bulk: Totals { flows: 198, packets: 1_466, bytes: 1_373_366 },
    alpha: 0.91,
    beta: 0.58,
};

/// Bytes per packet in Table 1, as printed.
const INTERACTIVE_BYTES: f64 = 137.2;
const BULK_BYTES: f64 = 936.8;
/// A full segment without TCP time stamps on Ethernet, bytes of payload.
const MSS: u32 = 1460;
/// Share of full segments among bulk packets that makes Table 1's mean size.
const FULL_SHARE: f64 = (BULK_BYTES - INTERACTIVE_BYTES) / (MSS as f64 - INTERACTIVE_BYTES);

/// The parameters. [`ThinClient::intranet`] and [`ThinClient::internet`] are the published ones.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinClient {
    /// P(next flow interactive | this one interactive), 0 … 1, both excluded.
    pub alpha: f64,
    /// P(next flow bulk | this one bulk), 0 … 1, both excluded.
    pub beta: f64,
    /// How far a trace's α̂ and β̂ may be from α and β; 0.01 in the thin-client study.
    pub tolerance: f64,
    /// Flows a trace has at least; 100 in the thin-client study.
    pub least_flows: u64,
    /// How many traces may be thrown away before giving up; the published parameters need about 6.
    pub most_tries: u32,
    /// No flow begins later.
    pub duration: Span,
    /// The first flow begins between 0 and this, uniformly.
    pub start_within: Span,
    /// A short packet has 20 bytes and a log-normal number; μ of ln bytes.
    pub size_mu: f64,
    /// σ of ln bytes. E\[size\] = 20 + e^(μ + σ²/2) = 137.2 with 4.3589 and 0.9; the cut takes 0.2
    /// %.
    pub size_sigma: f64,
    /// Largest payload of a packet, bytes, at least 100.
    pub mss: u32,
    /// f: share of full segments among bulk packets, 1/2 … 2/3. E\[n\] = f / (1 − f) full segments
    /// a data unit, n = 1 or 2: P(n = 1) = 2 − E\[n\], 0.4717 with 0.6045.
    pub full: f64,
    /// H: most data units of a bulk flow, 1 … 100 000; published: "about 10² packets at most", 2.5
    /// a unit.
    pub most_units: u32,
    /// a of P(m) ∝ m^−a, m = 1 … H: 1.9853 for H = 60, 1.9073 for 40, 2.0277 for 80, each with
    /// E\[m\] = 2.928, so that a bulk flow has 7.40 packets.
    pub unit_exponent: f64,
    /// Mean pause within a flow, exponential, cut at the threshold. 0.3 ms; the study says "short".
    pub packet_gap: Span,
    /// Between flows lie the threshold and a log-normal time; μ of ln seconds.
    pub gap_mu: f64,
    /// σ of ln seconds. With a longest pause of 20 s, σ = 2.4 needs μ = −4.0186 for E\[pause\] =
    /// 0.265 s = 300 s / 1132 flows; 2.0 needs −3.2837 and 1.5 needs −2.4714.
    pub gap_sigma: f64,
    /// The log-normal time is at most this.
    pub gap_most: Span,
}

impl ThinClient {
    /// Connections from the intranet (the thin-client study, §2.1), of which Table 1 is.
    pub const fn intranet() -> Self {
        Self {
            alpha: TABLE_1.alpha,
            beta: TABLE_1.beta,
            tolerance: 0.01,
            least_flows: 100,
            most_tries: 1_000,
            duration: TABLE_1.duration,
            start_within: Span::from_millis(500),
            size_mu: 4.3589,
            size_sigma: 0.9,
            mss: MSS,
            full: FULL_SHARE,
            most_units: 60,
            unit_exponent: 1.9853,
            packet_gap: Span::from_micros(300),
            gap_mu: -4.0186,
            gap_sigma: 2.4,
            gap_most: Span::from_secs(20),
        }
    }

    /// Connections from the Internet (the thin-client study, §2.1). Nothing but α and β was published of them.
    pub const fn internet() -> Self {
        Self { alpha: 0.94, beta: 0.59, ..Self::intranet() }
    }

    /// Long-run share of bulk flows: (1 − α) / ((1 − α) + (1 − β)); 0.176 (Table 1: 198 of 1132 =
    /// 0.175).
    pub fn bulk_share(&self) -> f64 {
        (1.0 - self.alpha) / ((1.0 - self.alpha) + (1.0 - self.beta))
    }
}

/// One write of the server's application, which is one packet where nothing holds it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// When, from the beginning of the trace.
    pub at: Time,
    /// Payload, 1 … MSS bytes.
    pub bytes: u32,
    /// Of its flow.
    pub kind: FlowKind,
    /// Its flow's number, from 0.
    pub flow: u32,
}

/// A connection's writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// In the order of time. The last flow may end some ms after the duration.
    pub writes: Vec<Write>,
    /// Its flows, as [`super::flows`] finds them.
    pub summary: Summary,
    /// How many were drawn until this one was close enough to α and β: at least 1.
    pub tries: u32,
}

/// Draws traces until one is as close to α and β as asked. Errors: a parameter out of range, or
/// [`ThinClient::most_tries`] traces not close enough.
pub fn generate(config: &ThinClient, rng: &mut Rng) -> Result<Trace, WorkloadError> {
    config.check()?;
    let units = PowerLaw::new(config.unit_exponent, config.most_units);
    let mut refused = Refused::default();
    for tries in 1..=config.most_tries {
        let writes = draw(config, &units, rng);
        let summary = classify(&writes);
        if refused.is_accepted(config, &summary) {
            return Ok(Trace { writes, summary, tries });
        }
    }
    Err(WorkloadError::NoneAccepted { tries: config.most_tries, refused })
}

fn classify(writes: &[Write]) -> Summary {
    let mut flows = Flows::new(THRESHOLD);
    for write in writes {
        flows.on_packet(write.at, write.bytes.into());
    }
    flows.finish();
    *flows.summary()
}

fn draw(config: &ThinClient, units: &PowerLaw, rng: &mut Rng) -> Vec<Write> {
    let mut writes = Vec::new();
    let end = Time::ZERO + config.duration;
    let mut at = Time::ZERO + Span::from_secs_f64(uniform(rng) * config.start_within.as_secs_f64());
    let first_bulk = happens(rng, config.bulk_share());
    let mut kind = if first_bulk { FlowKind::Bulk } else { FlowKind::Interactive };
    let mut flow = 0;
    while at < end {
        let mut sizes = Vec::new();
        match kind {
            FlowKind::Interactive => sizes.push(short(config, config.mss, rng)),
            FlowKind::Bulk => data_units(config, units.draw(rng), &mut sizes, rng),
        }
        for (n, bytes) in sizes.into_iter().enumerate() {
            if n > 0 {
                // a pause above the threshold has probability e^−21; cut, it never parts a flow
                let pause = Span::from_secs_f64(exponential(rng, config.packet_gap.as_secs_f64()));
                at += pause.min(THRESHOLD);
            }
            writes.push(Write { at, bytes, kind, flow });
        }
        let most = config.gap_most.as_secs_f64();
        let pause = Span::from_secs_f64(log_normal(rng, config.gap_mu, config.gap_sigma).min(most));
        at += THRESHOLD + pause.max(Span::from_nanos(1));
        let (stays, other) = match kind {
            FlowKind::Interactive => (config.alpha, FlowKind::Bulk),
            FlowKind::Bulk => (config.beta, FlowKind::Interactive),
        };
        if !happens(rng, stays) {
            kind = other;
        }
        flow += 1;
    }
    writes
}

/// "m (n · MSS + a)": m data units.
fn data_units(config: &ThinClient, m: u32, sizes: &mut Vec<u32>, rng: &mut Rng) {
    let mean = config.full / (1.0 - config.full);
    for _ in 0..m {
        let n = if happens(rng, 2.0 - mean) { 1 } else { 2 };
        sizes.extend(core::iter::repeat_n(config.mss, n));
        sizes.push(short(config, config.mss - 1, rng));
    }
}

/// Payload of a packet that is not full, 1 … `most`.
fn short(config: &ThinClient, most: u32, rng: &mut Rng) -> u32 {
    let size = 20.0 + log_normal(rng, config.size_mu, config.size_sigma);
    // a number beyond 32 bits becomes the largest of them
    (libm::round(size) as u32).clamp(1, most)
}
