//! `ekiden peer`: invites, joins and removes peers. It changes files; a running daemon notices.

use super::{finished, usable};
use crate::cli::peer::{PeerCommand, PeerConfig};
use crate::daemon::state;
use crate::print::{out, warn};
use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Peer, PeerKind, Store, Token, hash, random};
use std::error::Error;

/// Runs it. Returns the exit code.
pub(crate) fn run(command: PeerCommand) -> u8 {
    let done = match command {
        PeerCommand::Invite { name, address, send, receive, dedicated, config } => {
            let what = format!("at {address}, sends {send}, receives {receive}");
            let done = invite(name.clone(), address, Terms { send, receive, dedicated }, &config);
            recorded("ekiden peer invite", (&name, &what), &config, done)
        }
        PeerCommand::Join { token, name, send, receive, dedicated, config } => {
            let what = format!("at {}", token.address);
            let done = join(token, name.clone(), (send, receive, dedicated), &config);
            recorded("ekiden peer join", (&name, &what), &config, done)
        }
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
    let loaded = usable(args.config.as_deref())?;
    let tunnel = &loaded.reading.settings.tunnel;
    let directory = tunnel.state.clone().or_else(state::directory);
    let directory = directory.ok_or("no home directory; set `state` in [tunnel]")?;
    Ok((Store::new(directory), !tunnel.listen.is_empty()))
}

fn check_minimum(rate: Rate, option: &str) -> Result<(), String> {
    let least = Rate::from_bits_per_second(64_000);
    if rate < least {
        Err(format!("{option} {rate} is too low for a tunnel; use at least {least}"))
    } else {
        Ok(())
    }
}

fn invite(name: String, address: String, terms: Terms, args: &PeerConfig) -> Done {
    check_minimum(terms.send, "--send")?;
    check_minimum(terms.receive, "--receive")?;
    let (store, listens) = store(args)?;
    let fingerprint = store.credentials()?.fingerprint();
    let secret = random()?;
    // the peer receives what this relay sends
    let (send, receive) = (terms.receive, terms.send);
    let token = Token { address, fingerprint, secret, send, receive };
    let invitation = hash(&secret).into();
    store.add(Peer { name: name.clone(), kind: PeerKind::Invited { invitation }, terms })?;
    if !listens {
        warn(
            "this relay does not listen for tunnels yet: set [tunnel] listen = [\"0.0.0.0:4433\"], and restart it\n",
        );
    }
    warn(&format!(
        "peer \"{name}\" is invited; the next line works once, for anyone who has it:  ekiden peer join …\n"
    ));
    Ok(out(&format!("{token}\n")))
}

fn join(
    token: Token,
    name: String,
    (send, receive, dedicated): (Option<Rate>, Option<Rate>, Option<Rate>),
    args: &PeerConfig,
) -> Done {
    let (store, _) = store(args)?;
    store.credentials()?;
    let mut peer = token.peer(name);
    let unlimited = Rate::from_bits_per_second(u64::MAX);
    peer.terms.send = send.unwrap_or(unlimited).min(peer.terms.send);
    peer.terms.receive = receive.unwrap_or(unlimited).min(peer.terms.receive);
    peer.terms.dedicated = dedicated;
    check_minimum(peer.terms.send, "--send")?;
    check_minimum(peer.terms.receive, "--receive")?;
    let (name, terms) = (peer.name.clone(), peer.terms);
    store.add(peer)?;
    Ok(out(&format!(
        "peer \"{name}\" at {}: sends {}, receives {}\nto use it as an upstream:\n  [upstream.{name}]\n  url = \"tunnel://{name}\"\n  [[route]]\n  through = [\"{name}\"]\n",
        token.address, terms.send, terms.receive
    )))
}

fn list(json: bool, args: &PeerConfig) -> Done {
    let (store, _) = store(args)?;
    let peers = store.peers()?;
    if json {
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
        text.push_str(&format!("{}  sends {send}{own}, receives {receive}  {how}\n", peer.name));
    }
    Ok(out(&text))
}

/// A peer without its secrets.
fn document(peer: &Peer) -> serde_json::Value {
    let (kind, fingerprint, address) = match &peer.kind {
        PeerKind::Invited { .. } => ("invited", None, None),
        PeerKind::Peer { fingerprint } => ("peer", Some(fingerprint), None),
        PeerKind::Joined { fingerprint, address, .. } => {
            ("joined", Some(fingerprint), Some(address))
        }
    };
    serde_json::json!({
        "name": peer.name, "kind": kind, "fingerprint": fingerprint, "address": address,
        "send": peer.terms.send.as_bits_per_second(),
        "receive": peer.terms.receive.as_bits_per_second(),
        "dedicated": peer.terms.dedicated.map(Rate::as_bits_per_second),
    })
}

fn revoke(name: &str, args: &PeerConfig) -> Done {
    let (store, _) = store(args)?;
    store.remove(name)?;
    Ok(out(&format!(
        "peer \"{name}\" is removed; a running daemon ends its tunnel within a second\n"
    )))
}
