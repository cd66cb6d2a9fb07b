//! `ekiden relay`: who may open tunnels here, and where tunnels go. It changes files; a running daemon
//! notices.

use crate::cli::{RelayCommand, StateArgs};
use crate::config::{self, Overrides};
use crate::print::{out, warn};
use crate::{exit, state};
use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Kind, Relay, Store, Token, hash, random};
use std::error::Error;

/// Runs it. Returns the exit code.
#[must_use]
pub(crate) fn run(command: RelayCommand) -> u8 {
    let done = match command {
        RelayCommand::Invite { name, address, send, receive, dedicated, config } => {
            invite(name, address, Terms { send, receive, dedicated }, &config)
        }
        RelayCommand::Join { token, name, send, receive, dedicated, config } => {
            join(token, name, (send, receive, dedicated), &config)
        }
        RelayCommand::List { json, config } => list(json, &config),
        RelayCommand::Revoke { name, config } => revoke(&name, &config),
    };
    done.unwrap_or_else(|error| {
        warn(&format!("ekiden relay: {error}\n"));
        exit::NOT_FINE
    })
}

type Done = Result<u8, Box<dyn Error>>;

/// Where relays are kept, and whether this one listens for those it invites.
fn store(args: &StateArgs) -> Result<(Store, bool), Box<dyn Error>> {
    let loaded = config::load(args.config.as_deref(), &Overrides::default());
    if !loaded.reading.is_usable() {
        return Err(config::render_all(&loaded.reading.problems).into());
    }
    let tunnel = &loaded.reading.settings.tunnel;
    let directory = tunnel.state.clone().or_else(state::directory);
    let directory = directory.ok_or("there is no home directory; set `state` in [tunnel]")?;
    Ok((Store::new(directory), !tunnel.listen.is_empty()))
}

fn not_nothing(rate: Rate, option: &str) -> Result<(), String> {
    let least = Rate::from_bits_per_second(64_000);
    if rate < least {
        Err(format!("{option} {rate} is less than {least}, with which no tunnel can be kept"))
    } else {
        Ok(())
    }
}

fn invite(name: String, address: String, terms: Terms, args: &StateArgs) -> Done {
    not_nothing(terms.send, "--send")?;
    not_nothing(terms.receive, "--receive")?;
    let (store, listens) = store(args)?;
    let fingerprint = store.credentials()?.fingerprint();
    let secret = random()?;
    // what one sends the other receives
    let (send, receive) = (terms.receive, terms.send);
    let token = Token { address, fingerprint, secret, send, receive };
    let invitation = hash(&secret).into();
    store.add(Relay { name: name.clone(), kind: Kind::Invited { invitation }, terms })?;
    if !listens {
        warn(
            "this relay does not listen for tunnels yet: set [tunnel] listen = [\"0.0.0.0:4433\"], and restart it\n",
        );
    }
    warn(&format!(
        "relay «{name}» is invited; whoever has this line may use it, once:  ekiden relay join …\n"
    ));
    Ok(out(&format!("{token}\n")))
}

fn join(
    token: Token,
    name: String,
    (send, receive, dedicated): (Option<Rate>, Option<Rate>, Option<Rate>),
    args: &StateArgs,
) -> Done {
    let (store, _) = store(args)?;
    store.credentials()?;
    let mut relay = token.relay(name);
    relay.terms.send = send.unwrap_or(Rate::from_bits_per_second(u64::MAX)).min(relay.terms.send);
    relay.terms.receive =
        receive.unwrap_or(Rate::from_bits_per_second(u64::MAX)).min(relay.terms.receive);
    relay.terms.dedicated = dedicated;
    not_nothing(relay.terms.send, "--send")?;
    not_nothing(relay.terms.receive, "--receive")?;
    let (name, terms) = (relay.name.clone(), relay.terms);
    store.add(relay)?;
    Ok(out(&format!(
        "relay «{name}» at {}: sends {}, receives {}\nto go through it:\n  [upstream.{name}]\n  url = \"tunnel://{name}\"\n  [[route]]\n  through = [\"{name}\"]\n",
        token.address, terms.send, terms.receive
    )))
}

fn list(json: bool, args: &StateArgs) -> Done {
    let (store, _) = store(args)?;
    let relays = store.relays()?;
    if json {
        let relays: Vec<_> = relays.iter().map(document).collect();
        return Ok(out(&format!("{:#}\n", serde_json::json!({ "relays": relays }))));
    }
    if relays.is_empty() {
        return Ok(out("no relays are known; see `ekiden relay invite` and `ekiden relay join`\n"));
    }
    let mut text = String::new();
    for relay in &relays {
        let how = match &relay.kind {
            Kind::Invited { .. } => "invited, has not come yet".to_owned(),
            Kind::Peer { fingerprint } => format!("comes here, {fingerprint}"),
            Kind::Joined { address, .. } => format!("joined at {address}"),
        };
        let Terms { send, receive, dedicated } = relay.terms;
        let own = dedicated.map(|line| format!(" over a line of its own of {line}"));
        let own = own.unwrap_or_default();
        text.push_str(&format!("{}  sends {send}{own}, receives {receive}  {how}\n", relay.name));
    }
    Ok(out(&text))
}

/// What may be shown: no secrets.
fn document(relay: &Relay) -> serde_json::Value {
    let (kind, fingerprint, address) = match &relay.kind {
        Kind::Invited { .. } => ("invited", None, None),
        Kind::Peer { fingerprint } => ("peer", Some(fingerprint), None),
        Kind::Joined { fingerprint, address, .. } => ("joined", Some(fingerprint), Some(address)),
    };
    serde_json::json!({
        "name": relay.name, "kind": kind, "fingerprint": fingerprint, "address": address,
        "send": relay.terms.send.as_bits_per_second(),
        "receive": relay.terms.receive.as_bits_per_second(),
        "dedicated": relay.terms.dedicated.map(Rate::as_bits_per_second),
    })
}

fn revoke(name: &str, args: &StateArgs) -> Done {
    let (store, _) = store(args)?;
    store.remove(name)?;
    Ok(out(&format!(
        "relay «{name}» is forgotten; a running daemon ends its tunnel within a second\n"
    )))
}
