//! The arguments of `ekiden peer`.

use super::short_name;
use clap::{Args, Subcommand};
use ekiden_model::units::Rate;
use ekiden_tunnel::trust::Token;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Create an invitation for a peer and write it to standard output
    #[command(
        after_help = "Example:\n  ekiden peer invite --name ship --address relay.example:4433 --send '4 Mbit/s' --receive '800 kbit/s'\n\nAn invitation works once, for anyone who has it. A running daemon accepts it within a second. The daemon must\nlisten for tunnels: [tunnel] listen = [\"0.0.0.0:4433\"]."
    )]
    Invite {
        /// The peer's name on this relay
        #[arg(long, value_parser = short_name)]
        name: String,
        /// The UDP address at which the peer reaches this relay
        #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
        address: String,
        /// Maximum rate towards the peer, counted as IP packets
        #[arg(long, value_name = "RATE")]
        send: Rate,
        /// Maximum rate from the peer
        #[arg(long, value_name = "RATE")]
        receive: Rate,
        /// Rate of the link to the peer, if the link is yours alone. The tunnel then never yields to other
        /// traffic, and sends retransmissions on top of --send up to this rate
        #[arg(long, value_name = "RATE")]
        dedicated: Option<Rate>,
        #[command(flatten)]
        config: PeerConfig,
    },
    /// Accept an invitation
    #[command(
        after_help = "Example:\n  ekiden peer join ekiden1-… --name capital\n\nThen add to the configuration:\n  [upstream.capital]\n  url = \"tunnel://capital\"\n  [[route]]\n  through = [\"capital\"]"
    )]
    Join {
        /// The line that `ekiden peer invite` printed
        token: Token,
        /// The peer's name on this relay
        #[arg(long, value_parser = short_name)]
        name: String,
        /// Maximum rate towards the peer, if lower than the invitation's
        #[arg(long, value_name = "RATE")]
        send: Option<Rate>,
        /// Maximum rate from the peer, if lower than the invitation's
        #[arg(long, value_name = "RATE")]
        receive: Option<Rate>,
        /// Rate of the link to the peer, if the link is yours alone. The tunnel then never yields to other
        /// traffic, and sends retransmissions on top of its rate up to this one
        #[arg(long, value_name = "RATE")]
        dedicated: Option<Rate>,
        #[command(flatten)]
        config: PeerConfig,
    },
    /// List all peers
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: PeerConfig,
    },
    /// Remove a peer; its tunnel ends within a second
    Revoke {
        /// The peer's name
        name: String,
        #[command(flatten)]
        config: PeerConfig,
    },
}

/// Which configuration names the directory with peers.
#[derive(Debug, Args)]
pub(crate) struct PeerConfig {
    /// Configuration file that names the directory with peers [default: the file that `serve` uses]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

fn host_port(text: &str) -> Result<String, String> {
    let wanted = "expected a host and a port, such as relay.example:4433 or [2001:db8::1]:4433";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0);
    let host = ekiden_proxy::destination::Host::parse(host);
    if port.is_none() || host.is_err() { Err(wanted.to_owned()) } else { Ok(text.to_owned()) }
}
