//! What is changed from one scenario to the next.

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::EngineError;
use ekiden_model::control::congestion::{Algorithm, CubicConfig};
use ekiden_model::network::link::{Bound, Config, Discipline, FqCodelConfig, Serialiser};
use ekiden_model::network::rto::{Estimator, Gain};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig, Repair, Selective};
use ekiden_model::network::workload::flows::FlowKind;
use ekiden_model::units::{Rate, Span};
use ekiden_simulator::network::dumbbell::DumbbellConfig;
use ekiden_simulator::network::flow::{FlowConfig, Source};

/// `Large enough that no packet is dropped` (the thin-client study, §3.1).
const PACKETS: u64 = 10_000;
const MSS: u32 = 1460;

/// A scenario: the study's own, or a remedy of today on the same traces.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) era: Era,
    flavour: Flavour,
    /// Interactive packets go first in the router.
    priority: bool,
    /// The router serves flows in turn (RFC 8290).
    fair: bool,
    /// The sender's relay holds the rate and sends interactive packets first; the router is plain.
    held: bool,
    /// T1: the estimate is forgotten after idle times.
    reset: bool,
    /// T2: g = 7/8.
    quick: bool,
    /// A connection for each kind.
    apart: bool,
    cubic: bool,
    f_rto: bool,
    /// RACK and tail probes.
    by_time: bool,
    /// No fast retransmission of what was sent before the last loss.
    careful: bool,
    /// Round trips are measured in ticks of 10 ms.
    ticks: bool,
    minimum: Span,
    window: u32,
}

impl Scenario {
    pub(crate) fn of(cell: &Cell) -> Result<Self, EngineError> {
        let name = cell.text("scenario")?;
        let is = |names: &[&str]| names.contains(&name);
        let era = Era::named(cell.text("era")?)
            .ok_or_else(|| cell.error("era", "it is none that is known"))?;
        let sack = is(&["SACK", "RACK-TLP", "F-RTO", "CUBIC", "FQ-CoDel", "today", "held rate"]);
        Ok(Self {
            era,
            flavour: if sack { Flavour::Sack } else { Flavour::Reno },
            priority: is(&["P", "P+T1", "P+T2", "approach 1", "approach 2"]),
            fair: is(&["FQ-CoDel", "today"]),
            held: is(&["held rate"]),
            reset: is(&["P+T1", "approach 1", "approach 2", "held rate"]),
            quick: is(&["P+T2", "approach 1", "approach 2"]),
            apart: is(&["approach 2", "held rate"]),
            cubic: is(&["CUBIC", "today"]),
            f_rto: is(&["F-RTO", "today", "held rate"]),
            by_time: is(&["RACK-TLP", "today", "held rate"]),
            careful: cell.text("careful")? == "yes",
            ticks: cell.text("clock")? == "10 ms",
            minimum: cell.value("minimum-rto")?,
            window: cell.value("segments")?,
        })
    }

    /// The kinds that have a connection of their own; one for all of them.
    pub(crate) fn lanes(&self) -> Vec<Option<FlowKind>> {
        if self.apart {
            vec![Some(FlowKind::Interactive), Some(FlowKind::Bulk)]
        } else {
            vec![None]
        }
    }

    pub(crate) fn dumbbell(&self, pairs: u32) -> DumbbellConfig {
        let mbit = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
        let access = (mbit(100), Span::from_millis(1));
        let bottleneck = (mbit(10), Span::from_millis(20));
        let mut config = DumbbellConfig::new(pairs, access, bottleneck, PACKETS);
        let bound = Bound::Packets(PACKETS);
        if self.priority {
            config.bottleneck.discipline = Discipline::Priority(bound);
        } else if self.fair {
            config.bottleneck.discipline = Discipline::FqCodel(FqCodelConfig::default());
        }
        // 2 % less than the bottleneck, whose plain queue then stays empty
        config.shaper = self.held.then(|| Config {
            discipline: Discipline::Priority(bound),
            serialiser: Serialiser::Rate(Rate::from_bits_per_second(9_800_000)),
            ..Config::default()
        });
        config
    }

    pub(crate) fn flow(&self, phase: Span, lane: Option<FlowKind>, source: Source) -> FlowConfig {
        let mut sender = self.era.sender(self.flavour, MSS, f64::from(self.window), phase);
        // hosts without Nagle, delayed acknowledgements and slow-start restart (the thin-client study, §3.1)
        sender.nagle = false;
        sender.restart_after_idle = false;
        sender.rto.minimum = self.minimum;
        sender.rto.initial = Span::from_secs(3);
        // the study treats the bulk connection, where there is one of its own
        let treated = lane != Some(FlowKind::Interactive);
        sender.reset_rto_after_idle = self.reset && treated;
        if self.quick && treated {
            sender.rto.gain = Gain::SEVEN_EIGHTHS;
        }
        if !self.ticks || sender.rto.gain != Gain::EIGHTH {
            // a gain of 7/8 cannot be had by shifts
            sender.rto.estimator = Estimator::Exact;
        }
        if self.cubic {
            sender.congestion.algorithm = Algorithm::Cubic(CubicConfig::default());
        }
        // today's remedies are today's scoreboard, whatever the era had
        if self.flavour == Flavour::Sack {
            sender.repair = Repair::Selective(Selective {
                rack: self.by_time,
                tail_probe: self.by_time,
                proportional: self.by_time,
                limited_transmit: true,
                f_rto: self.f_rto,
            });
        } else if let Repair::Counting(counting) = &mut sender.repair {
            counting.careful = self.careful;
        }
        let selective = self.flavour == Flavour::Sack;
        let receiver = ReceiverConfig {
            acknowledging: Acknowledging::EACH,
            selective,
            duplicates: selective,
            ..ReceiverConfig::linux(MSS, u64::from(self.window) * u64::from(MSS), 7)
        };
        FlowConfig::new(sender, receiver, source)
    }
}
