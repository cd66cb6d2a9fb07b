//! The end of a tunnel that the other relay can reach.

use super::Failed;
use super::session::{Plan, Session};
use crate::cli::init::Shore;
use crate::cli::peer::{Invited, host_port};
use crate::commands::peer::invite::show;
use crate::commands::record_change;
use crate::exit;
use crate::print::warn;
use crate::setup::lan;
use ekiden_admin::peers::{Invitation, check_terms, invite};
use ekiden_config::name as check_name;
use ekiden_model::units::{Rate, UnitError};
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Peer, PeerKind, Store};
use std::net::{IpAddr, SocketAddr};

const ADDRESS: (&str, &str) =
    ("--address", "Address at which the other relay reaches this one, such as shore.example:4433");
const SEND: (&str, &str) =
    ("--send", "What the link carries towards the other relay, such as '20 Mbit/s'");
const RECEIVE: (&str, &str) = ("--receive", "What the link carries from it, such as '2 Mbit/s'");

pub(super) fn set_up(mut session: Session, args: Shore) -> Result<u8, Failed> {
    let asker = session.asker;
    let Invited { name, address, send, receive, dedicated, renew } = args.invited;
    asker.require(&[
        (address.is_some(), ADDRESS),
        (send.is_some(), SEND),
        (receive.is_some(), RECEIVE),
    ])?;
    let address = asker.answer(address, ADDRESS, None, host_port)?;
    let read = |text: &str| check_name(text).map(|()| text.to_owned());
    let name = asker.answer(name, ("--name", "Name of the other relay"), Some("far"), read)?;
    let rate = |text: &str| text.parse::<Rate>().map_err(|error: UnitError| error.to_string());
    let send = asker.answer(send, SEND, None, rate)?;
    let receive = asker.answer(receive, RECEIVE, None, rate)?;
    let terms = Terms { send, receive, dedicated };
    check_terms(&terms).map_err(Failed::usage)?;

    if args.clients.is_some() {
        session.clients(args.clients, &[])?;
    }
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(4433);
    let listens = session.document.draft().tunnel.listen.iter().any(|at| at.port() == port);
    if !args.listen.is_empty() || !listens {
        let listen = if args.listen.is_empty() { listen(&address, port) } else { args.listen };
        session.document.listen(&["tunnel"], &listen)?;
    }
    let folder = session.place.state(session.document.draft().tunnel.state.clone())?;
    let store = Store::new(folder.clone());
    let known = store.peers().map_err(|error| error.to_string())?;
    let known = known.into_iter().find(|peer| peer.name == name);
    let invites = invites(known.as_ref(), &terms, renew)?;
    let steps: Vec<String> = invites
        .then(|| {
            format!("invite \"{name}\" to {address}: this relay sends {send}, receives {receive}")
        })
        .into_iter()
        .collect();
    let changes = match session.propose(&steps)? {
        Plan::Do(changes) => changes,
        Plan::Nothing => {
            say_known(known.as_ref(), &name);
            return Ok(exit::FINE);
        }
        Plan::Not => return Ok(exit::FINE),
    };
    session.place.make_state(&folder)?;
    let prepared = session.document.prepare(&changes, &session.place)?;
    let invited = if invites {
        let invitation = Invitation { name: name.clone(), address, terms, renew };
        Some(invite(&store, invitation).map_err(|error| error.to_string())?)
    } else {
        None
    };
    if let Err(why) = prepared.commit() {
        // the invitation was shown to nobody
        let undone = match invited {
            Some((_, Some(old))) => store.put(old, |_| true).map(drop),
            Some((_, None)) => store.remove(&name).map(drop),
            None => Ok(()),
        };
        undone.map_err(|error| error.to_string())?;
        return Err(why.into());
    }
    if let Some((token, _)) = &invited {
        let what = format!("at {}, sends {send}, receives {receive}", token.address);
        let (config, done) = (session.place.config.as_path(), Ok::<_, String>(()));
        record_change(Some(config), ("ekiden init shore", &name), &done, &what);
    }
    let ports: Vec<String> =
        changes.reading.settings.tunnel.listen.iter().map(|at| at.port().to_string()).collect();
    let mut ports = ports;
    ports.dedup();
    let mut remains = vec![format!(
        "open UDP port {0} in the firewall, and TCP port {0} for networks that block UDP",
        ports.join(", ")
    )];
    let line = match &invited {
        Some((token, _)) => {
            remains.push("type the line below on the other machine (with sudo where ekiden is a service); it works once, for anyone who has it".to_owned());
            format!("ekiden init far {token}")
        }
        None => String::new(),
    };
    let code = session.finish(&remains, &line);
    match invited {
        Some((token, _)) => show(&token, false),
        None => say_known(known.as_ref(), &name),
    }
    Ok(code)
}

/// Whether the peer is to be invited; it is not where the same was asked before.
fn invites(known: Option<&Peer>, terms: &Terms, renew: bool) -> Result<bool, Failed> {
    let Some(known) = known.filter(|_| !renew) else { return Ok(true) };
    if known.terms == *terms && !matches!(known.kind, PeerKind::Joined { .. }) {
        return Ok(false);
    }
    Err(format!(
        "a peer \"{}\" is known with other rates; --renew invites it again with these, or choose another name with --name; nothing was written",
        known.name
    )
    .into())
}

fn say_known(known: Option<&Peer>, name: &str) {
    let state = match known.map(|peer| &peer.kind) {
        Some(PeerKind::Peer { .. }) => "has joined",
        _ => "is invited, and its line was shown once",
    };
    warn(&format!("\"{name}\" {state}; for a new line run this again with --renew\n"));
}

/// The address of every kind by which the other relay may come.
fn listen(address: &str, port: u16) -> Vec<SocketAddr> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let all = lan::everywhere();
    let of_kind =
        |ip: &IpAddr| host.parse::<IpAddr>().map_or(true, |host| host.is_ipv4() == ip.is_ipv4());
    all.into_iter().filter(of_kind).map(|ip| SocketAddr::new(ip, port)).collect()
}
