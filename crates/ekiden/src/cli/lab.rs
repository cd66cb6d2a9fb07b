//! The arguments of `ekiden lab`.

use clap::{ArgGroup, Args, Subcommand};
use ekiden_lab::classify::ServerAddress;
use ekiden_model::network::workload::flows::THRESHOLD;
use ekiden_model::units::Span;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the experiments
    #[command(after_help = "Example:\n  ekiden lab list")]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run or resume an experiment, and write its report
    #[command(
        after_help = "Examples:\n  ekiden lab run island --quick\n  ekiden lab run island --only row --peers ekiden,squid\n\n\
            Rows are kept run by run in OUT/NAME/ENGINE/rows.jsonl; the same command resumes.\n\
            Exit codes: 0 all was measured; 1 runs are left or failed, or with --strict an asserted figure\n\
            or claim does not hold."
    )]
    Run(Box<LabRun>),
    /// Record one simulated run of an experiment, packet by packet
    #[command(after_help = RECORD_HELP)]
    Record(Box<LabRecord>),
    /// Rewrite summary, figures and report from the rows of a run
    #[command(after_help = "Example:\n  ekiden lab report results/island/kernel")]
    Report {
        /// The folder with rows.jsonl
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The plan of these rows [default: the built-in plan of that name]
        #[arg(long, value_name = "FILE")]
        plan: Option<String>,
        /// Exit with 1 when an asserted figure or claim does not hold
        #[arg(long)]
        strict: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Compare the flows in a capture of thin clients with published figures
    #[command(after_help = CLASSIFY_HELP)]
    Classify {
        /// A pcap or pcapng file, captured near the server
        #[arg(value_name = "CAPTURE")]
        capture: PathBuf,
        /// The side whose data counts [default: who answered the handshake, else the lower port]
        #[arg(long, value_name = "ADDRESS[:PORT]|:PORT")]
        server: Option<ServerAddress>,
        /// A longer pause begins a new flow [default: 6.309573 ms, which is 10^-2.2 s]
        #[arg(long, value_name = "TIME", default_value_t = THRESHOLD, hide_default_value = true)]
        threshold: Span,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

const CLASSIFY_HELP: &str = "Examples:\n  \
    sudo tcpdump -i eth0 -s 96 -w rdp.pcap tcp port 3389\n  \
    ekiden lab classify rdp.pcap\n  \
    ekiden lab classify rdp.pcap --json | jq .bulk.stays\n\n\
    A pause above 10^-2.2 s begins a new flow; flows of one packet are interactive. Queues\n\
    change pauses, so capture near the server.\n\n\
    The document's schema is docs/book/src/reference/schema/classify.json.";

const RECORD_HELP: &str = "Examples:\n  \
    ekiden lab record island --only row --cell relays=2 --cell file=8MiB --cell window=defaults \\\n    \
    --cell peer=squid --packets run.parquet --pcap run.pcapng\n  \
    duckdb -c \"select event, count(*) from 'run.parquet' group by event\"\n  \
    tshark -r run.pcapng -Y tcp.analysis.retransmission\n\n\
    The run equals that of `ekiden lab run --engine sim` for this case, repetition and seed, with the\n\
    same fingerprint. If several cases match, it lists them.";

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("output").args(["packets", "pcap"]).required(true).multiple(true)))]
pub(crate) struct LabRecord {
    /// An experiment of `ekiden lab list`, or the path of a plan
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Only this part
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub only: Vec<String>,
    /// The case with this value (may be repeated)
    #[arg(long, value_name = "AXIS=VALUE")]
    pub cell: Vec<String>,
    /// Which repetition, from 0
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub repetition: u32,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Write rows of segments and writes here, as Parquet
    #[arg(long, value_name = "FILE")]
    pub packets: Option<PathBuf>,
    /// Write a capture of headers here, as pcapng
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// The hosts that the capture is made at: those that send most, or those that receive it
    #[arg(long, value_name = "SIDE", default_value = "sender", value_parser = ["sender", "receiver"])]
    pub at: String,
    /// Only these flows, numbered from 0 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub flows: Vec<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LabRun {
    /// An experiment of `ekiden lab list`, or the path of a plan
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Engine: kernel or sim [default: the plan's first]
    #[arg(long)]
    pub engine: Option<String>,
    /// Fewer values and repetitions: a first look in minutes
    #[arg(long)]
    pub quick: bool,
    /// Only these relays, and the un-split path
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub peers: Vec<String>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    pub only: Vec<String>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Repetitions of every cell, instead of the plan's
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: Option<u32>,
    /// Runs at once [default: as many as do not disturb the measurement]
    #[arg(long, value_name = "NUMBER")]
    pub jobs: Option<usize>,
    /// Keep rows of another version of program or plan; the report tells them apart
    #[arg(long)]
    pub keep: bool,
    /// Exit with 1 when an asserted figure or claim does not hold
    #[arg(long)]
    pub strict: bool,
    /// Results go to DIR/NAME/ENGINE [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as one JSON document
    #[arg(long)]
    pub json: bool,
}
