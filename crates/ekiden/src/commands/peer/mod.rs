//! `ekiden peer`: invites, joins and removes peers. It changes files; a running daemon notices.

pub(crate) mod invite;
pub(crate) mod join;
pub(crate) mod qr;

use super::{finished, own};
use crate::cli::peer::{PeerCommand, PeerConfig};
use crate::daemon::state;
use crate::print::out;
use crate::setup::running;
use ekiden_admin::peers::document;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Peer, PeerKind, Store};
use std::error::Error;

/// Runs it. Returns the exit code.
pub(crate) fn run(command: PeerCommand) -> u8 {
    let done = match command {
        PeerCommand::Invite(args) => {
            let invitation = match invite::invitation(&args.invited) {
                Ok(invitation) => invitation,
                Err(why) => return finished("peer", Err(why)),
            };
            let Terms { send, receive, .. } = invitation.terms;
            let what = format!("at {}, sends {send}, receives {receive}", invitation.address);
            let name = invitation.name.clone();
            let done = invite::command(&args, invitation);
            recorded("ekiden peer invite", (&name, &what), &args.config, done)
        }
        PeerCommand::Join(args) => return join::command(&args),
        PeerCommand::List { json, config } => list(json, &config),
        PeerCommand::Revoke { name, config } => {
            let done = revoke(&name, &config);
            recorded("ekiden peer revoke", (&name, ""), &config, done)
        }
    };
    finished("peer", done)
}

type Done = Result<u8, Box<dyn Error>>;

/// With a line in the audit log; a token is a secret and is not in it.
fn recorded(command: &str, (name, what): (&str, &str), args: &PeerConfig, done: Done) -> Done {
    super::record_change(args.config.as_deref(), (command, name), &done, what);
    done
}

/// The store of peers, and whether this relay listens for tunnels.
fn store(args: &PeerConfig) -> Result<(Store, bool), Box<dyn Error>> {
    let loaded = own(args.config.as_deref())?;
    let tunnel = &loaded.reading.settings.tunnel;
    let directory = tunnel.state.clone().or_else(state::directory);
    let directory = directory.ok_or("no home directory; set `state` in [tunnel]")?;
    crate::setup::place::check_owner(&directory)?;
    Ok((Store::new(directory), !tunnel.listen.is_empty()))
}

fn list(json: bool, args: &PeerConfig) -> Done {
    let (store, _) = store(args)?;
    let peers = store.peers()?;
    // of the daemon that runs, if one does
    let tunnels = join::runtime().ok().and_then(|runtime| running::status(&runtime));
    let tunnels = tunnels.map_or_else(Vec::new, |status| status.tunnels);
    let is_up =
        |peer: &Peer| tunnels.iter().find(|seen| seen.peer == peer.name).map(|seen| seen.up);
    if json {
        let document = |peer| document(peer, is_up(peer));
        let peers: Vec<_> = peers.iter().map(document).collect();
        return Ok(out(&format!("{:#}\n", serde_json::json!({ "peers": peers }))));
    }
    if peers.is_empty() {
        return Ok(out("no peers; see `ekiden peer invite` and `ekiden peer join`\n"));
    }
    let mut text = String::new();
    for peer in &peers {
        let how = match &peer.kind {
            PeerKind::Invited { .. } => "invited, not connected yet".to_owned(),
            PeerKind::Peer { fingerprint } => format!("connects to this relay, {fingerprint}"),
            PeerKind::Joined { address, .. } => format!("joined at {address}"),
        };
        let Terms { send, receive, dedicated } = peer.terms;
        let own = dedicated.map(|link| format!(" over a dedicated link of {link}"));
        let own = own.unwrap_or_default();
        let state = match is_up(peer) {
            Some(true) => ", up",
            Some(false) if !matches!(peer.kind, PeerKind::Invited { .. }) => ", down",
            _ => "",
        };
        text.push_str(&format!(
            "{}  this relay sends {send}{own}, receives {receive}  {how}{state}\n",
            peer.name
        ));
    }
    Ok(out(&text))
}

fn revoke(name: &str, args: &PeerConfig) -> Done {
    let (store, _) = store(args)?;
    store.remove(name)?;
    Ok(out(&format!(
        "peer \"{name}\" is removed; a running daemon ends its tunnel within a second\n"
    )))
}
