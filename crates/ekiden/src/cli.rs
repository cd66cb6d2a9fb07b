//! The arguments. What they mean is done elsewhere.

use crate::config::{Overrides, pattern};
use crate::link;
use crate::user_args::UserCommand;
use clap::{ArgGroup, Args, Parser, Subcommand};
use ekiden_lab::classify::ServerAddress;
use ekiden_model::units::{Rate, Span};
use ekiden_model::workload::flows::THRESHOLD;
use ekiden_tunnel::trust::Token;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A TCP accelerator for long, lossy, asymmetric and shared links.
#[derive(Debug, Parser)]
#[command(
    name = "ekiden",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Begin with:\n  \
        ekiden serve                            # a proxy on 127.0.0.1:3128\n  \
        curl -x http://127.0.0.1:3128 http://example.org/\n  \
        ekiden doctor                           # what this machine allows, and how to allow more\n\n\
        Exit codes: 0 fine, 1 what was checked is not fine, 2 usage, 64-78 as in sysexits.h.\n\
        NO_COLOR switches colours off; EKIDEN_LOG=debug overrides the log level."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the accelerator: HTTP, CONNECT, SOCKS5 and SOCKS4a on one port
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Find every problem of a configuration, with its place and a hint
    #[command(
        after_help = "Examples:\n  ekiden check config.toml\n  ekiden check --json | jq '.problems[].message'\n\nExit codes: 0 usable (warnings may be there), 1 not."
    )]
    Check(Check),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say what this machine's kernel and settings allow, and how to allow more
    #[command(
        after_help = "Examples:\n  ekiden doctor\n  ekiden doctor --with relay.example:3128\n  sudo ekiden doctor --apply --persist"
    )]
    Doctor(Doctor),
    /// One look at a running daemon: budgets, upstreams, connections
    #[command(
        after_help = "Examples:\n  ekiden status\n  ekiden status --json | jq '.connections[].legs[].rtt_us'\n\nThe document's schema is docs/schema/status.json."
    )]
    Status(Status),
    /// A live screen of a running daemon's households and connections
    #[command(
        after_help = "Keys: r sorts by rate, b by bytes, a by age, i by idle time; the same again turns the order;\nq or Esc quits."
    )]
    Top(Top),
    /// Why a connection has its class, way and buffers
    #[command(
        after_help = "Example:\n  ekiden explain 17        # numbers are in `ekiden status`\n\nThe document's schema is docs/schema/explain.json."
    )]
    Explain(Explain),
    /// Households: who may use this relay, what they may do, what they have used
    #[command(subcommand)]
    User(UserCommand),
    /// The secret that the management API asks for
    #[command(subcommand)]
    Token(TokenCommand),
    /// Tunnels to other relays: one invites, the other joins
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Congestion controls of Ekiden's own, in the kernel for a daemon without privilege
    #[command(subcommand)]
    Bpf(BpfCommand),
    /// Run a command, or a shell, behind an emulated link
    #[command(after_help = link::args::HELP)]
    Link(Box<link::args::LinkArgs>),
    /// Experiments: published results replayed, squid and dante beside
    #[command(subcommand)]
    Lab(LabCommand),
    /// Write a completion script for a shell to standard output
    #[command(
        after_help = "Example:\n  ekiden completions bash > ~/.local/share/bash-completion/completions/ekiden"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output
    #[command(after_help = "Example:\n  ekiden man | man -l -")]
    Man,
}

const SERVE_HELP: &str = "Examples:\n  \
    ekiden serve                                      # 127.0.0.1:3128, nothing configured\n  \
    ekiden serve --config /etc/ekiden/config.toml\n  \
    ekiden serve --allow-destination 127.0.0.0/8      # to try it with servers on this machine\n\n\
    SIGHUP reads the configuration again; live connections keep theirs. SIGTERM and SIGINT stop: no new\n\
    connections, and live ones have `timeouts.stop` to end; the second signal ends at once.\n\n\
    Listening beyond loopback is refused (exit code 78) without accounts or a [[rule]] that names\n\
    the clients.";

/// Which configuration.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Configuration file [default: ~/.config/ekiden/config.toml or /etc/ekiden/config.toml, if
    /// there; $XDG_CONFIG_HOME counts]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen here instead of the configuration's addresses (may be repeated)
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// Let clients reach this prefix although it is loopback, private or the like (may be repeated)
    #[arg(long = "allow-destination", value_name = "CIDR", value_parser = pattern::net)]
    pub allow_destinations: Vec<IpNet>,
    /// Control socket, instead of the configuration's
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub socket: Option<PathBuf>,
}

impl ConfigArgs {
    /// What they say over the file.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            allow_destinations: self.allow_destinations.clone(),
            control: self.socket.clone(),
        }
    }
}

/// `ekiden serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Which configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// `ekiden check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file [default: the one `serve` would use]
    pub file: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `ekiden config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// The configuration in effect, as TOML, with where each value comes from; passwords as ***
    #[command(
        after_help = "Examples:\n  ekiden config show\n  ekiden config show --defaults\n  ekiden config show --listen 127.0.0.1:8080"
    )]
    Show {
        /// Which configuration.
        #[command(flatten)]
        config: ConfigArgs,
        /// The defaults alone
        #[arg(long, conflicts_with_all = ["config", "listen", "allow_destinations", "socket"])]
        defaults: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// A configuration to begin with: every key with its documentation, commented out at its default
    #[command(after_help = "Example:\n  ekiden config example > config.toml")]
    Example,
}

/// `ekiden bpf …`.
#[derive(Debug, Subcommand)]
pub enum BpfCommand {
    /// Load them and pin them below /run/ekiden-bpf, as root
    #[command(
        after_help = "Example:\n  ekiden bpf load --user ekiden      # ExecStartPre=+ of a service\n\nA leg's `congestion` may then name \"hold\" and \"westwood\" though the daemon has no capability. They stay\nuntil `ekiden bpf unload` or the machine's end; after an update this loads the new ones. A daemon with CAP_BPF,\nCAP_PERFMON and CAP_NET_ADMIN needs none of this."
    )]
    Load {
        /// The user the daemon runs as, by name or number; without, root's daemons alone
        #[arg(long, value_name = "USER")]
        user: Option<String>,
    },
    /// Remove them; connections that use them keep them until they end
    Unload,
}

/// `ekiden token …`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print it
    #[command(
        after_help = "Example:\n  curl -H \"Authorization: Bearer $(ekiden token show)\" http://127.0.0.1:9128/api/v1/status\n\nOn a machine with several users, a command line is seen by all while it runs: there, give curl the line on\nstandard input (-H @-)."
    )]
    Show {
        /// Which configuration.
        #[command(flatten)]
        config: TokenArgs,
    },
    /// Make a new one and print it; the old one is refused from then on, by a running daemon too
    Rotate {
        /// Which configuration.
        #[command(flatten)]
        config: TokenArgs,
    },
}

/// Which configuration says where the token is.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Configuration file that says where the token is kept [default: the one `serve` would use]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `ekiden relay …`.
#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Make an invitation for another relay, and write it to standard output
    #[command(
        after_help = "Example:\n  ekiden relay invite --name ship --address relay.example:4433 --send '4 Mbit/s' --receive '800 kbit/s'\n\nWhoever has the invitation may use it, once. A running daemon takes it over within a second; it must\nlisten for tunnels: [tunnel] listen = [\"0.0.0.0:4433\"]."
    )]
    Invite {
        /// What the other relay is called here
        #[arg(long, value_parser = relay_name)]
        name: String,
        /// Where the other relay reaches this one, over UDP
        #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
        address: String,
        /// What this relay may send to the other, on the IP wire
        #[arg(long, value_name = "RATE")]
        send: Rate,
        /// What the other relay may send to this one
        #[arg(long, value_name = "RATE")]
        receive: Rate,
        /// The line towards the other relay is your own and has this rate: others on it are no reason to
        /// give way, and losses are made up for as far as it is faster than --send
        #[arg(long, value_name = "RATE")]
        dedicated: Option<Rate>,
        /// Which configuration.
        #[command(flatten)]
        config: StateArgs,
    },
    /// Accept an invitation
    #[command(
        after_help = "Example:\n  ekiden relay join ekiden1-… --name capital\n\nThen, in the configuration:\n  [upstream.capital]\n  url = \"tunnel://capital\"\n  [[route]]\n  through = [\"capital\"]"
    )]
    Join {
        /// The line that `ekiden relay invite` printed
        token: Token,
        /// What the other relay is called here
        #[arg(long, value_parser = relay_name)]
        name: String,
        /// What this relay may send, if less than the invitation says
        #[arg(long, value_name = "RATE")]
        send: Option<Rate>,
        /// What this relay wants to receive, if less than the invitation says
        #[arg(long, value_name = "RATE")]
        receive: Option<Rate>,
        /// The line towards the other relay is your own and has this rate: others on it are no reason to
        /// give way, and losses are made up for as far as it is faster than what may be sent
        #[arg(long, value_name = "RATE")]
        dedicated: Option<Rate>,
        /// Which configuration.
        #[command(flatten)]
        config: StateArgs,
    },
    /// The relays that are known
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Which configuration.
        #[command(flatten)]
        config: StateArgs,
    },
    /// Forget a relay; a tunnel to or from it ends within a second
    Revoke {
        /// What it is called here
        name: String,
        /// Which configuration.
        #[command(flatten)]
        config: StateArgs,
    },
}

/// Which configuration says where relays are kept.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Configuration file that says where relays are kept [default: the one `serve` would use]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn relay_name(text: &str) -> Result<String, String> {
    crate::config::name(text).map(|()| text.to_owned())
}

fn host_port(text: &str) -> Result<String, String> {
    let wanted = "a host and a port, such as relay.example:4433 or [2001:db8::1]:4433";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0);
    let host = ekiden_proxy::destination::Host::parse(host);
    if port.is_none() || host.is_err() { Err(wanted.to_owned()) } else { Ok(text.to_owned()) }
}

/// `ekiden doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// A relay to look at too: HOST:PORT, some handshakes; a relay's name, its tunnel's rates for 10 s
    #[arg(long, value_name = "RELAY")]
    pub with: Option<String>,
    /// Do what mends the findings, as far as permitted
    #[arg(long)]
    pub apply: bool,
    /// Also keep what was set over a restart of the machine, in /etc/sysctl.d/90-ekiden.conf
    #[arg(long, requires = "apply")]
    pub persist: bool,
    /// Control socket of the daemon whose paths are looked at, if not the usual one
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub socket: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `ekiden status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print the daemon's document as it is
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `ekiden explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The connection's number, as `ekiden status` shows it
    #[arg(value_name = "CONNECTION")]
    pub connection: u64,
    /// Print the daemon's document as it is
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `ekiden top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Between two looks, 100 ms to 1 h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Span,
}

/// `ekiden lab …`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// The experiments there are
    #[command(after_help = "Example:\n  ekiden lab list")]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment, or go on with one that was interrupted, and write its report
    #[command(
        after_help = "Examples:\n  ekiden lab run island --quick\n  ekiden lab run island --only row --peers ekiden,squid\n\n\
            Rows are kept run by run in OUT/NAME/ENGINE/rows.jsonl; the same command goes on with them.\n\
            Exit codes: 0 all that is asserted holds, 1 something does not, or runs are left."
    )]
    Run(Box<LabRun>),
    /// Run one case of an experiment in the simulator and write it down packet by packet
    #[command(after_help = RECORD_HELP)]
    Record(Box<LabRecord>),
    /// Write summary, figures and report anew from the rows of a run
    #[command(after_help = "Example:\n  ekiden lab report results/island/kernel")]
    Report {
        /// The folder with rows.jsonl
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The plan of these rows [default: the one of that name that comes with the program]
        #[arg(long, value_name = "FILE")]
        plan: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Find interactive and bulk flows in a capture of thin clients, beside the published figures
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
    The document's schema is docs/schema/classify.json.";

const RECORD_HELP: &str = "Examples:\n  \
    ekiden lab record island --only row --cell relays=2 --cell file=8MiB --cell window=defaults \\\n    \
    --cell peer=squid --packets run.parquet --pcap run.pcapng\n  \
    duckdb -c \"select event, count(*) from 'run.parquet' group by event\"\n  \
    tshark -r run.pcapng -Y tcp.analysis.retransmission\n\n\
    It is the very run that `ekiden lab run --engine sim` makes of this case, repetition and seed: the\n\
    fingerprints are equal. Where several cases are left, it says which.";

/// `ekiden lab record`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("output").args(["packets", "pcap"]).required(true).multiple(true)))]
pub struct LabRecord {
    /// An experiment of `ekiden lab list`, or the path of a plan
    #[arg(value_name = "NAME")]
    pub name: String,
    /// This part alone
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub only: Vec<String>,
    /// The case with this value (may be repeated)
    #[arg(long, value_name = "AXIS=VALUE")]
    pub cell: Vec<String>,
    /// Which repetition, from 0
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub repetition: u32,
    /// All randomness follows from it
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Rows of segments and writes go here, as Parquet
    #[arg(long, value_name = "FILE")]
    pub packets: Option<PathBuf>,
    /// A capture of headers goes here, as pcapng
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// The hosts that the capture is made at: those that send most, or those that receive it
    #[arg(long, value_name = "SIDE", default_value = "sender", value_parser = ["sender", "receiver"])]
    pub at: String,
    /// These flows alone, by number from 0 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub flows: Vec<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `ekiden lab run`.
#[derive(Debug, Args)]
pub struct LabRun {
    /// An experiment of `ekiden lab list`, or the path of a plan
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What runs it: kernel or sim [default: the plan's first]
    #[arg(long)]
    pub engine: Option<String>,
    /// Fewer values and repetitions: a first look in minutes
    #[arg(long)]
    pub quick: bool,
    /// These relays alone, beside the un-split path
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub peers: Vec<String>,
    /// These parts alone
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    pub only: Vec<String>,
    /// All randomness follows from it
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Repetitions of every cell, instead of the plan's
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: Option<u32>,
    /// Runs beside each other [default: as many as do not disturb what is measured]
    #[arg(long, value_name = "NUMBER")]
    pub jobs: Option<usize>,
    /// Go on with rows that another version of program or plan made; the report says whose are which
    #[arg(long)]
    pub keep: bool,
    /// Results go to DIR/NAME/ENGINE [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as one JSON document
    #[arg(long)]
    pub json: bool,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    pattern::socket(text, None)
        .map_err(|why| format!("{why}; write it like 127.0.0.1:3128 or [::1]:3128"))
}

fn socket(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

fn interval(text: &str) -> Result<Span, String> {
    let span: Span =
        text.parse().map_err(|error: ekiden_model::units::UnitError| error.to_string())?;
    if (Span::from_millis(100)..=Span::from_secs(3600)).contains(&span) {
        Ok(span)
    } else {
        Err("100 ms to 1 h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
