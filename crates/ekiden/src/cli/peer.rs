//! The arguments of `ekiden peer`.

use super::short_name;
use clap::{Args, Subcommand};
use ekiden_model::units::Rate;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Create an invitation for a peer and write it to standard output
    #[command(after_help = INVITE_HELP)]
    Invite(Invite),
    /// Accept an invitation, and use the peer as an upstream
    #[command(after_help = JOIN_HELP)]
    Join(Join),
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

const INVITE_HELP: &str = "Example:\n  \
    ekiden peer invite --name ship --address relay.example:4433 \\\n    \
    --send '4 Mbit/s' --receive '800 kbit/s'\n\n\
    An invitation works once, for anyone who has it. A running daemon accepts it within a second. The daemon must\n\
    listen for tunnels: [tunnel] listen = [\"0.0.0.0:4433\"]. `ekiden init shore` does both.";
const JOIN_HELP: &str = "Example:\n  \
    ekiden peer join ekiden1-… --name capital\n\n\
    It adds to the configuration what is missing of:\n  \
    [upstream.capital]\n  url = \"tunnel://capital\"\n  [[route]]\n  through = [\"capital\"]\n\n\
    `ekiden init far` also sets the addresses that clients use.";

/// Whom to invite, and the link between: of `peer invite` and of `init shore`, which asks for what is missing.
#[derive(Debug, Default, Args)]
pub(crate) struct Invited {
    /// Name of the other relay here
    #[arg(long, value_parser = short_name)]
    pub name: Option<String>,
    /// Address at which the other relay reaches this one, over UDP and TCP
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    pub address: Option<String>,
    /// What the link carries towards the other relay, counted as IP packets, such as '20 Mbit/s'
    #[arg(long, value_name = "RATE")]
    pub send: Option<Rate>,
    /// What the link carries from it
    #[arg(long, value_name = "RATE")]
    pub receive: Option<Rate>,
    /// Rate of the link, if it is yours alone. The tunnel then never yields to other traffic, and sends
    /// retransmissions on top of --send up to this rate
    #[arg(long, value_name = "RATE")]
    pub dedicated: Option<Rate>,
    /// Invite the other relay again; the line before, or the relay that used it, is no longer accepted
    #[arg(long)]
    pub renew: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("name", |arg| arg.required(true)), mut_arg("address", |arg| arg.required(true)))]
#[command(mut_arg("send", |arg| arg.required(true)), mut_arg("receive", |arg| arg.required(true)))]
pub(crate) struct Invite {
    #[command(flatten)]
    pub invited: Invited,
    /// Also print a QR code to standard error [default: on a terminal where it fits]
    #[arg(long, conflicts_with = "no_qr")]
    pub qr: bool,
    /// Print no QR code
    #[arg(long)]
    pub no_qr: bool,
    /// Print one JSON document: name, invitation, link, address, send, receive
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: PeerConfig,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The line that `ekiden peer invite` printed, or its link, in one piece or several; `-` reads it from
    /// standard input
    #[arg(required = true)]
    pub token: Vec<String>,
    /// The peer's name on this relay
    #[arg(long, value_parser = short_name, default_value = "shore")]
    pub name: String,
    /// Maximum rate towards the peer, if lower than the invitation's
    #[arg(long, value_name = "RATE")]
    pub send: Option<Rate>,
    /// Maximum rate from the peer, if lower than the invitation's
    #[arg(long, value_name = "RATE")]
    pub receive: Option<Rate>,
    /// Rate of the link to the peer, if the link is yours alone. The tunnel then never yields to other
    /// traffic, and sends retransmissions on top of its rate up to this one
    #[arg(long, value_name = "RATE")]
    pub dedicated: Option<Rate>,
    /// Leave the configuration alone and print what to add to it
    #[arg(long)]
    pub print: bool,
    /// Do not try to reach the peer
    #[arg(long)]
    pub offline: bool,
    #[command(flatten)]
    pub config: PeerConfig,
}

/// Which configuration names the directory with peers.
#[derive(Debug, Args)]
pub(crate) struct PeerConfig {
    /// Configuration file that names the directory with peers [default: the file that `serve` uses]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

pub(crate) fn host_port(text: &str) -> Result<String, String> {
    let wanted = "expected a host and a port, such as relay.example:4433 or [2001:db8::1]:4433";
    let bare = ekiden_proxy::destination::Host::parse(text).is_ok();
    let Some((host, port)) = text.rsplit_once(':').filter(|_| !bare) else {
        return Err(if bare {
            format!("the port is missing; write it like {}:4433", bracketed(text))
        } else {
            wanted.to_owned()
        });
    };
    let port = port.parse::<u16>().ok().filter(|port| *port != 0);
    let host = ekiden_proxy::destination::Host::parse(host);
    if port.is_none() || host.is_err() { Err(wanted.to_owned()) } else { Ok(text.to_owned()) }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_relay_that_is_joined_is_called_shore_where_nothing_is_said() {
        let cli = crate::cli::Cli::try_parse_from(["ekiden", "peer", "join", "ekiden1-x"]).unwrap();
        let crate::cli::Command::Peer(PeerCommand::Join(join)) = cli.command else { panic!() };
        assert_eq!(join.name, "shore");
    }

    #[test]
    fn a_missing_port_is_named() {
        for (text, said) in [
            ("relay.example", "write it like relay.example:4433"),
            ("192.0.2.1", "write it like 192.0.2.1:4433"),
            ("[2001:db8::1]", "write it like [2001:db8::1]:4433"),
            ("relay.example:0", "expected a host and a port"),
            ("relay.example:http", "expected a host and a port"),
        ] {
            let why = host_port(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
        assert!(host_port("relay.example:4433").is_ok() && host_port("[2001:db8::1]:4433").is_ok());
    }
}
