//! The arguments of `ekiden link`.

use clap::Args;
use ekiden_emulator::settings::Settings;
use ekiden_emulator::topology::{LinkPlan, MTU};
use ekiden_linux::host::facts::Capabilities;
use ekiden_model::network::link::{Loss, LossUnit, QueueKind, QueueLength, Scheduled};
use ekiden_model::units::{Rate, Span};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Examples and notes for `--help`.
pub(crate) const HELP: &str = "Examples:\n  \
    ekiden link --delay 25ms --rate 10Mbit/s --loss 0.1% -- \\\n    \
    curl -O http://example.org/file\n  \
    ekiden link --delay 300ms --down rate=4Mbit/s,loss=1% --up rate=800kbit/s   # a shell on a ship\n  \
    ekiden link --delay 25ms --far 'iperf3 -s' -- iperf3 -c far\n  \
    ekiden link --rate 8Mbit/s --change '10s: rate 1 Mbit/s' \\\n    \
    --change '20s: rate 8 Mbit/s' --every 30s -- …\n  \
    ekiden link --topology office.toml --at desk -- ping -c 3 server\n\n\
    The delay is one way: --delay 25ms makes a round trip of 50 ms. \"Up\" is away from the command,\n\
    \"down\" towards it. By default the queue holds what the rate sends in 100 ms.\n\n\
    As root, the far end is this machine (named \"far\", $EKIDEN_FAR) and what it reaches.\n\
    An ordinary user gets an empty machine there: --far COMMAND runs something on it.\n\n\
    Exit code: the command's (127 and 126 when it could not be run, 128 + n when signal n ended it).\n\
    1 when the link could not be made, or with --strict was not clean. 2 for invalid arguments.";

#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// One-way delay, both directions
    #[arg(long, value_name = "TIME", value_parser = read::<Span>)]
    pub delay: Option<Span>,
    /// Random extra delay of each packet, up to this; keeps the order
    #[arg(long, value_name = "TIME", value_parser = read::<Span>)]
    pub jitter: Option<Span>,
    /// Let jitter change the order of packets
    #[arg(long, requires = "jitter")]
    pub reorder: bool,
    /// Rate [default: as fast as this machine can]
    #[arg(long, value_name = "RATE", value_parser = read::<Rate>)]
    pub rate: Option<Rate>,
    /// Rate by a trace in Mahimahi's format
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub trace: Option<PathBuf>,
    /// Loss: 0.1%, gilbert(1%, 10%), packets(3, 17)
    #[arg(long, value_name = "LOSS", value_parser = read::<Loss>)]
    pub loss: Option<Loss>,
    /// Unit of loss: packet, super-packet, train(65535 B, 1 ms)
    #[arg(long, value_name = "UNIT", value_parser = read::<LossUnit>)]
    pub loss_unit: Option<LossUnit>,
    /// Queue length: 100ms, 50packets, 64KiB, unlimited
    #[arg(long, value_name = "LENGTH", value_parser = read::<QueueLength>)]
    pub queue: Option<QueueLength>,
    /// Queue discipline: droptail, priority (by DSCP), ack-first, fq-codel
    #[arg(long, value_name = "NAME", value_parser = read::<QueueKind>)]
    pub discipline: Option<QueueKind>,
    /// Bytes that framing adds to each packet (Ethernet: 14, 18 or 38)
    #[arg(long, value_name = "BYTES")]
    pub framing: Option<u32>,
    /// A change at a time: '10s: rate 2 Mbit/s', '20s: delay 300ms', '30s: loss 5%' (may be repeated)
    #[arg(long, value_name = "CHANGE", value_parser = read::<Scheduled>)]
    pub change: Vec<Scheduled>,
    /// Period after which the changes repeat
    #[arg(long, value_name = "TIME", requires = "change", value_parser = read::<Span>)]
    pub every: Option<Span>,
    /// Settings of the uplink only: rate=1Mbit/s,delay=5ms,loss=0 …
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = direction)]
    pub up: Option<Settings>,
    /// Settings of the downlink only
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = direction)]
    pub down: Option<Settings>,
    /// Largest IP packet, 576 to 65535 (IPv6 needs 1280)
    #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    pub mtu: u32,
    /// Let TCP hand over super-packets, for links above some 500 Mbit/s
    #[arg(long)]
    pub super_packets: bool,
    /// Send and receive packet by packet on fast links too, as without offloads
    #[arg(long, conflicts_with = "super_packets")]
    pub one_by_one: bool,
    /// Congestion control at both ends, as cubic [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Seed of all randomness
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run this at the far end, an empty machine, by the shell
    #[arg(long, value_name = "COMMAND")]
    pub far: Option<String>,
    /// A whole network from a plan, instead of one link
    #[arg(long, value_name = "FILE", conflicts_with_all = ["delay", "jitter", "rate", "trace", "loss", "loss_unit", "queue", "discipline", "framing", "change", "up", "down", "far", "congestion", "super_packets"])]
    pub topology: Option<PathBuf>,
    /// The host of the plan to run the command at [default: the first]
    #[arg(long, value_name = "HOST", requires = "topology")]
    pub at: Option<String>,
    /// Write every packet to a capture that tshark and Wireshark read
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write what became of each packet as CSV
    #[arg(long, value_name = "FILE")]
    pub packets: Option<PathBuf>,
    /// Write the report as JSON at the end [to standard output, or FILE]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Exit with 1 unless the link kept its time exactly
    #[arg(long)]
    pub strict: bool,
    /// Print errors only
    #[arg(long, short)]
    pub quiet: bool,
    /// What to run at the near end [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl LinkArgs {
    fn both(&self) -> Settings {
        Settings {
            delay: self.delay,
            jitter: self.jitter,
            reorder: self.reorder.then_some(true),
            rate: self.rate,
            trace: self.trace.clone(),
            loss: self.loss.clone(),
            loss_unit: self.loss_unit,
            queue: self.queue,
            discipline: self.discipline,
            framing: self.framing,
            change: self.change.clone(),
            every: self.every,
        }
    }

    /// The link asked for.
    /// Errors: settings that do not go together, a trace that cannot be read.
    pub(crate) fn plan(&self) -> Result<LinkPlan, String> {
        let config = |own: &Option<Settings>, name: &str, seed| {
            own.clone()
                .unwrap_or_default()
                .or(&self.both())
                .config(self.mtu, self.super_packets, seed, Path::new("."))
                .map_err(|error| format!("{name}: {error}"))
        };
        Ok(LinkPlan {
            name: "link".to_owned(),
            between: ["near".to_owned(), "far".to_owned()],
            mtu: self.mtu,
            super_packets: self.super_packets,
            one_by_one: self.one_by_one,
            forward: config(&self.up, "up", self.seed)?,
            backward: config(&self.down, "down", self.seed.wrapping_add(1))?,
        })
    }

    /// Whether this machine is to be at the far end, if it is permitted.
    pub(crate) fn machine_is_far(&self) -> bool {
        self.far.is_none() && self.topology.is_none() && Capabilities::of_this_process().net_admin
    }

    /// The link in a few characters, for the prompt.
    pub(crate) fn label(&self) -> String {
        let parts = [
            self.delay.map(|delay| delay.to_string()),
            self.rate.map(|rate| rate.to_string()),
            self.trace.as_ref().map(|_| "trace".to_owned()),
            self.loss.as_ref().map(|loss| format!("loss {loss}")),
            (self.up.is_some() || self.down.is_some()).then(|| "asymmetric".to_owned()),
        ];
        let label = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if label.is_empty() { "no limits".to_owned() } else { label }
    }
}

/// A value, or why it is none.
fn read<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// `rate=1Mbit/s,delay=5ms`; a comma within brackets belongs to the value.
fn direction(text: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for part in split(text) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("invalid setting \"{part}\"; write it like rate=1Mbit/s,delay=5ms")
        })?;
        match key.trim() {
            "delay" => settings.delay = Some(read(value)?),
            "jitter" => settings.jitter = Some(read(value)?),
            "reorder" => settings.reorder = Some(read(value)?),
            "rate" => settings.rate = Some(read(value)?),
            "trace" => settings.trace = Some(value.into()),
            "loss" => settings.loss = Some(read(value)?),
            "loss-unit" => settings.loss_unit = Some(read(value)?),
            "queue" => settings.queue = Some(read(value)?),
            "discipline" => settings.discipline = Some(read(value)?),
            "framing" => settings.framing = Some(read(value)?),
            "change" => settings.change.push(read(value)?),
            "every" => settings.every = Some(read(value)?),
            other => {
                return Err(format!(
                    "unknown setting \"{other}\"; there are: delay, jitter, reorder, rate, trace, loss, \
                     loss-unit, queue, discipline, framing, change, every"
                ));
            }
        }
    }
    Ok(settings)
}

fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction() {
        let up = direction("rate=1Mbit/s,loss=gilbert(1%, 10%),delay=5ms").unwrap();
        assert_eq!(up.rate, Some(Rate::from_bits_per_second(1_000_000)));
        assert_eq!(up.delay, Some(Span::from_millis(5)));
        assert!(up.loss.is_some());
        assert!(direction("rat=1").unwrap_err().contains("there are: delay"));
        assert!(direction("rate").unwrap_err().contains("rate=1Mbit/s"));
    }
}
