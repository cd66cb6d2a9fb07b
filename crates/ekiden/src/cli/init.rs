//! The arguments of `ekiden init`.

use super::peer::Invited;
use super::{listen, short_name};
use clap::{Args, Subcommand};
use ekiden_config::pattern;
use ekiden_model::units::Rate;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Init {
    #[command(subcommand)]
    pub arrangement: Option<Arrangement>,
    #[command(flatten)]
    pub how: InitHow,
}

/// How it goes about it.
#[derive(Debug, Clone, Args)]
pub(crate) struct InitHow {
    /// Ask nothing: take the default wherever an option is missing, and write. Needed where there is no terminal
    #[arg(long, short = 'y', global = true)]
    pub yes: bool,
    /// Show what would be written, and write nothing
    #[arg(long, global = true)]
    pub dry_run: bool,
    /// Configuration file to write [default: the service's, where it is installed; else the user's own]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Arrangement {
    /// One relay half-way, for accounts that log in with a password
    HalfWay(HalfWay),
    /// The end of a tunnel that the other relay can reach: invites it and prints one line for it
    Shore(Shore),
    /// The other end of a tunnel, behind the long link: takes the line that `init shore` printed
    Far(Far),
    /// One relay beside the modem of a long, lossy link; clients run nothing of Ekiden
    Modem(Modem),
    /// The router of a network: relays every device's connections, with nothing configured there
    Gateway(Gateway),
}

impl Arrangement {
    /// The options for the addresses on which it listens: for clients, and for tunnels.
    pub(crate) const fn listen_options(&self) -> [Option<&'static str>; 2] {
        match self {
            Self::HalfWay(_) | Self::Far(_) | Self::Modem(_) => [Some("--listen"), None],
            Self::Shore(_) => [Some("--clients"), Some("--listen")],
            Self::Gateway(_) => [None, None],
        }
    }
}

const HELP: &str = "Examples:\n  \
    ekiden init                # asks\n  \
    ekiden init shore --address shore.example:4433 --name ship \\\n    \
    --send '20 Mbit/s' --receive '2 Mbit/s'\n  \
    ekiden init far ekiden1-…  # the line that `init shore` printed\n\n\
    It shows what it will do and asks before it writes. Without a terminal it writes only with --yes.\n\
    Running it again changes only what differs.\n\
    Remarks and questions go to standard error; standard output has the one line to use elsewhere.";

#[derive(Debug, Default, Args)]
pub(crate) struct HalfWay {
    /// The relay's name in the DNS, or its address, as clients write it
    #[arg(long, value_name = "HOST")]
    pub name: Option<String>,
    /// Address and port for clients (repeatable) [default: port 3128 of all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// The first account; its password is generated and shown once [default: home]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// A PEM file with the certificate [default: a self-signed one is made]
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// A PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Have the relay order a certificate for --name from Let's Encrypt; listens on port 443, too
    #[arg(long, requires = "agree_to_terms", conflicts_with = "certificate")]
    pub acme: bool,
    /// You agree to the terms of Let's Encrypt, which are at letsencrypt.org/repository
    #[arg(long, requires = "acme")]
    pub agree_to_terms: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Shore {
    #[command(flatten)]
    pub invited: Invited,
    /// Address and port to listen on for tunnels (repeatable) [default: the port of --address, on all addresses]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<SocketAddr>,
    /// Address and port for clients of this relay [default: port 3128 of this machine alone]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub clients: Option<SocketAddr>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Far {
    /// The invitation: `ekiden1-…` or its link, in one piece or several; `-` reads it from standard input
    #[arg(value_name = "INVITATION")]
    pub token: Vec<String>,
    /// Name of the other relay here [default: shore]
    #[arg(long, value_name = "NAME", value_parser = short_name)]
    pub name: Option<String>,
    /// Address and port for clients [default: port 3128 of this machine's private address]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Option<SocketAddr>,
    /// Addresses of clients (repeatable) [default: the network of --listen]
    #[arg(long, value_name = "CIDR", value_parser = pattern::net)]
    pub from: Vec<IpNet>,
    /// Rate of the link, if it is yours alone: the tunnel then never yields to other traffic
    #[arg(long, value_name = "RATE")]
    pub dedicated: Option<Rate>,
    /// Do not try to reach the other relay
    #[arg(long)]
    pub offline: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Modem {
    /// Rate towards the clients, counted as IP packets with retransmissions, such as '4 Mbit/s'
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,
    /// Rate of the line, if it is yours alone and faster: retransmissions are sent on top of --rate
    #[arg(long, value_name = "RATE")]
    pub line: Option<Rate>,
    /// Address and port for clients [default: port 3128 of this machine's private address]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: Option<SocketAddr>,
    /// Addresses of clients (repeatable) [default: the network of --listen]
    #[arg(long, value_name = "CIDR", value_parser = pattern::net)]
    pub from: Vec<IpNet>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Gateway {
    /// Device behind which the clients are (repeatable) [default: the one with a private address and no default route]
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<String>,
    /// Addresses of clients (repeatable) [default: the networks of the devices]
    #[arg(long, value_name = "CIDR", value_parser = pattern::net)]
    pub from: Vec<IpNet>,
    /// Answer QUIC with "port unreachable", so that browsers use TCP at once
    #[arg(long)]
    pub block_quic: bool,
    /// Let telephones in by WireGuard, which find this machine under this name or address from outside
    #[arg(long, value_name = "HOST[:PORT]")]
    pub wireguard: Option<String>,
}
