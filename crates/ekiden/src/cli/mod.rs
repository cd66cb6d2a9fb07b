//! The command line. Each command's arguments are plain data; `commands` and `daemon` act on them.

pub(crate) mod account;
pub(crate) mod init;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "lab")]
pub(crate) mod link;
pub(crate) mod peer;

use account::AccountCommand;
use clap::{Args, Parser, Subcommand};
use ekiden_config::{Overrides, pattern};
use ekiden_model::units::Span;
use ipnet::IpNet;
use peer::PeerCommand;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A TCP accelerator for long, lossy, asymmetric and shared links.
#[derive(Debug, Parser)]
#[command(
    name = "ekiden",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Getting started:\n  \
        ekiden serve                            # a proxy on 127.0.0.1:3128\n  \
        curl -x http://127.0.0.1:3128 http://example.org/\n  \
        ekiden init                             # set up a relay half-way, a pair with a tunnel, a modem, a gateway\n  \
        ekiden doctor                           # check this machine, and how to improve it\n\n\
        Exit codes: 0 success, 1 a check failed, 2 usage, 64-78 as in sysexits.h.\n\
        NO_COLOR disables colours; EKIDEN_LOG=debug overrides the log level."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the accelerator: HTTP, CONNECT, SOCKS5 and SOCKS4a on one port
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Set up this machine: a relay half-way, an end of a tunnel, a relay beside a modem, a gateway
    Init(Box<init::Init>),
    /// Check a configuration: every problem with its line and a hint
    #[command(
        after_help = "Examples:\n  ekiden check config.toml\n  ekiden check --json | jq '.problems[].message'\n\nExit codes: 0 usable (perhaps with warnings), 1 not usable."
    )]
    Check(Check),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check this machine's kernel and settings, and how to improve them
    #[command(
        after_help = "Examples:\n  ekiden doctor\n  ekiden doctor --with relay.example:3128\n  sudo ekiden doctor --apply --persist"
    )]
    Doctor(Doctor),
    /// Show the status of a running daemon: budgets, upstreams, connections
    #[command(
        after_help = "Examples:\n  ekiden status\n  ekiden status --json | jq '.connections[].legs[].rtt_us'\n\nSchema of the document: docs/book/src/reference/schema/status.json."
    )]
    Status(Status),
    /// Try whether alerts arrive
    #[command(subcommand)]
    Alerts(AlertsCommand),
    /// Show a running daemon's accounts and connections on a live screen
    #[command(
        after_help = "Keys: r sorts by rate, b by bytes, a by age, i by idle time; the same key again reverses the order;\nq or Esc quits."
    )]
    Top(Top),
    /// Explain what holds an account, a peer's clients or one connection back
    #[command(
        after_help = "Examples:\n  ekiden explain tanaka    # an account: why is it slow?\n  ekiden explain ship      # what comes out of a peer's tunnel\n  ekiden explain 17        # one connection; `ekiden status` shows the numbers\n\nSchemas of the documents: docs/book/src/reference/schema/explain.json for a connection, and explain-account.json beside it."
    )]
    Explain(Explain),
    /// Manage accounts: who may use this relay, their limits, their usage
    #[command(subcommand)]
    Account(AccountCommand),
    /// Show or replace the token of the management API
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage operators: who may use the dashboard and the management API without the token
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Manage peers at the other end of tunnels: one relay invites, the other joins
    #[command(subcommand)]
    Peer(PeerCommand),
    /// Show the rules that divert connections of devices to this relay
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Load Ekiden's own congestion controls into the kernel, for a daemon without privileges
    #[command(subcommand)]
    Bpf(BpfCommand),
    #[cfg(feature = "lab")]
    /// Run a command or a shell behind an emulated link
    #[command(after_help = link::HELP)]
    Link(Box<link::LinkArgs>),
    /// Needs the feature `lab`.
    #[cfg(not(feature = "lab"))]
    #[command(hide = true, disable_help_flag = true)]
    Link(Rest),
    #[cfg(feature = "lab")]
    /// Run experiments: published results replayed, squid and dante for comparison
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Needs the feature `lab`.
    #[cfg(not(feature = "lab"))]
    #[command(hide = true, disable_help_flag = true)]
    Lab(Rest),
    /// Print a shell completion script
    #[command(
        after_help = "Example:\n  ekiden completions bash > ~/.local/share/bash-completion/completions/ekiden"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Example:\n  ekiden man | man -l -")]
    Man,
}

const SERVE_HELP: &str = "Examples:\n  \
    ekiden serve                                      # 127.0.0.1:3128, nothing configured\n  \
    ekiden serve --config /etc/ekiden/config.toml\n  \
    ekiden serve --allow-destination 127.0.0.0/8      # for servers on this machine\n\n\
    SIGHUP reloads the configuration; live connections keep theirs. SIGTERM and SIGINT stop the daemon: it\n\
    accepts no new connections, and live ones may run for `timeouts.stop`. A second signal ends at once.\n\n\
    Listening beyond loopback is refused (exit code 78) without accounts or a [[rule]] that names the\n\
    clients.";

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [default: ekiden/config.toml in $XDG_CONFIG_HOME or ~/.config, else
    /// /etc/ekiden/config.toml, which root prefers to ~/.config]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen on this address instead of the configuration's (repeatable)
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// Allow clients to reach this loopback, private or other special prefix, or address of this machine (repeatable)
    #[arg(long = "allow-destination", value_name = "CIDR", value_parser = pattern::net)]
    pub allow_destinations: Vec<IpNet>,
    /// Control socket instead of the configuration's
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub socket: Option<PathBuf>,
}

impl ConfigArgs {
    /// What overrides the file.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen.clone(),
            allow_destinations: self.allow_destinations.clone(),
            control: self.socket.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file [default: the file that `serve` uses]
    pub file: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the effective configuration as TOML, with the origin of each value; passwords as ***
    #[command(
        after_help = "Examples:\n  ekiden config show\n  ekiden config show --defaults\n  ekiden config show --listen 127.0.0.1:8080"
    )]
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Show only the defaults
        #[arg(long, conflicts_with_all = ["config", "listen", "allow_destinations", "socket"])]
        defaults: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print an example configuration: every key, documented and commented out at its default
    #[command(after_help = "Example:\n  ekiden config example > config.toml")]
    Example,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Print what the daemon sets, for nft and for ip; it changes nothing
    #[command(
        after_help = "Example:\n  ekiden gateway show\n\nThe daemon sets all of it by itself. The table belongs to it: when the daemon ends, however that comes, the\nkernel removes the table, and connections pass by."
    )]
    Show {
        /// Configuration file [default: the file that `serve` uses]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Control socket of the daemon, whose ports are shown, if not the default
        #[arg(long, value_name = "PATH", value_parser = socket)]
        socket: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Add an operator, whose password is the first line of standard input
    #[command(
        after_help = "Examples:\n  echo 'a long password' | ekiden operator add mika\n  ekiden operator add guest --viewer < password\n\nA running daemon lets the operator in at once."
    )]
    Add {
        /// Name: letters, digits, `-` and `_`
        name: String,
        /// May look, and change nothing
        #[arg(long)]
        viewer: bool,
        #[command(flatten)]
        config: TokenArgs,
    },
    /// Remove an operator, whose sessions end at once
    Remove {
        /// The operator's name
        name: String,
        #[command(flatten)]
        config: TokenArgs,
    },
    /// List all operators
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: TokenArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// Have the daemon send a trial alert to all who are told of alerts, and print what comes back
    #[command(
        after_help = "Example:\n  ekiden alerts test\n\nThe daemon sends it, with its own rights and its own way out. `ekiden status` shows the alerts that stand."
    )]
    Test {
        /// Control socket of the daemon, if not the default
        #[arg(long, value_name = "PATH", value_parser = socket)]
        socket: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BpfCommand {
    /// Load them and pin them below /run/ekiden-bpf; needs root
    #[command(
        after_help = "Example:\n  ekiden bpf load --user ekiden --if-named      # ExecStartPre=+ of a service\n\nA leg's `congestion` may then name \"hold\" and \"westwood\" although the daemon has no capability. They stay\nuntil `ekiden bpf unload` or a reboot; run this again after an update. A daemon with CAP_BPF, CAP_PERFMON and\nCAP_NET_ADMIN does not need it."
    )]
    Load {
        /// User that the daemon runs as, by name or number [default: root]
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Load only those that a leg of the configuration names; do nothing if none does
        #[arg(long)]
        if_named: bool,
        /// Configuration file of --if-named [default: the file that `serve` uses]
        #[arg(long, value_name = "FILE", requires = "if_named")]
        config: Option<PathBuf>,
    },
    /// Remove them; connections keep them until they end
    Unload,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the token
    #[command(
        after_help = "Example:\n  curl -H \"Authorization: Bearer $(ekiden token show)\" http://127.0.0.1:9128/api/v1/status\n\nAll users of a machine can see a running command line. On a shared machine, give curl the header on standard\ninput (-H @-)."
    )]
    Show {
        #[command(flatten)]
        config: TokenArgs,
    },
    /// Create a new token and print it; a running daemon rejects the old one at once
    Rotate {
        #[command(flatten)]
        config: TokenArgs,
    },
}

/// Which configuration names the token file.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Configuration file that names the token file [default: the file that `serve` uses]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Also test a proxy (HOST:PORT, ten handshakes) or a peer (its name, the tunnel's rates for 10 s)
    #[arg(long, value_name = "HOST:PORT|PEER")]
    pub with: Option<String>,
    /// Apply the fixes, as far as permitted
    #[arg(long)]
    pub apply: bool,
    /// Also write the settings to /etc/sysctl.d/90-ekiden.conf, so that they survive a reboot
    #[arg(long, requires = "apply")]
    pub persist: bool,
    /// Control socket of the daemon, if not the default
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub socket: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print the daemon's JSON document
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// An account, a peer, or the number of a connection, as `ekiden status` shows it
    #[arg(value_name = "NAME|CONNECTION")]
    pub what: String,
    /// Print the daemon's JSON document
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Refresh interval, 100 ms to 1 h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Span,
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
        Err("expected 100 ms to 1 h".to_owned())
    }
}

fn short_name(text: &str) -> Result<String, String> {
    ekiden_config::name(text).map(|()| text.to_owned())
}

/// The parser of an option that has a new name: it accepts nothing.
fn renamed(new: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |_| Err(format!("this option is now {new}"))
}

/// The arguments of a command that has a new name.
#[derive(Debug, Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<String>,
}

impl Rest {
    /// The same command under its new name.
    pub(crate) fn renamed(&self, new: &str) -> String {
        let options = |word: &String| match word.as_str() {
            "--relay" => "--peer".to_owned(),
            "--when-spent" => "--on-quota-exceeded".to_owned(),
            "--slower" => "--throttle-rate".to_owned(),
            other if other.contains([' ', '\'', '"']) => format!("{other:?}"),
            other => other.to_owned(),
        };
        let words: Vec<String> = self.rest.iter().map(options).collect();
        format!("ekiden {new} {}", words.join(" "))
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
