//! `ekiden peer join`, and the joining of `ekiden init far`: reaches the other relay, keeps it, uses it as an upstream.

use super::recorded;
use crate::cli::peer::Join;
use crate::exit;
use crate::print::{out, warn};
use crate::setup::document::{Document, Routed};
use crate::setup::place::Place;
use crate::setup::{clock, running};
use ekiden_admin::peers::check_terms;
use ekiden_config::find;
use ekiden_model::units::{Rate, Span};
use ekiden_proxy::observe::status::TunnelStatus;
use ekiden_tunnel::driver::{Probe, probe};
use ekiden_tunnel::trust::{
    BadToken, Credentials, Fingerprint, Peer, PeerKind, Store, StoreError, Token, fingerprint,
};
use std::error::Error;
use std::io::Read as _;
use tokio::runtime::{Builder, Runtime};

pub(super) fn command(args: &Join) -> u8 {
    let token = match read_token(&args.token) {
        Ok(token) => token,
        Err(why) => {
            warn(&format!("ekiden peer join: {why}\n"));
            return exit::USAGE;
        }
    };
    let what = format!("at {}", token.address);
    let done = join(&token, args);
    super::finished("peer", recorded("ekiden peer join", (&args.name, &what), &args.config, done))
}

/// An invitation from its pieces, or from standard input.
pub(crate) fn read_token(pieces: &[String]) -> Result<Token, String> {
    if pieces == ["-"] {
        let mut text = String::new();
        // far more than a token
        let read = std::io::stdin().take(64 * 1024).read_to_string(&mut text);
        read.map_err(|error| format!("standard input cannot be read: {error}"))?;
        return text.parse().map_err(|error: BadToken| error.to_string());
    }
    pieces.concat().parse().map_err(|error: BadToken| error.to_string())
}

fn join(token: &Token, args: &Join) -> Result<u8, Box<dyn Error>> {
    let mut peer = token.peer(args.name.clone());
    let unlimited = Rate::from_bits_per_second(u64::MAX);
    peer.terms.send = args.send.unwrap_or(unlimited).min(peer.terms.send);
    peer.terms.receive = args.receive.unwrap_or(unlimited).min(peer.terms.receive);
    peer.terms.dedicated = args.dedicated;
    check_terms(&peer.terms)?;
    let (store, _) = super::store(&args.config)?;
    say_clocks(token);
    let (name, terms) = (peer.name.clone(), peer.terms);
    let joining = Joining::new(store, peer)?;
    let place = match args.config.config.clone().or_else(find) {
        Some(config) => Place { service: Place::of(Some(&config))?.service, config },
        None => Place::of(None)?,
    };
    // what cannot be changed is known before anything is
    let mut document = if args.print { None } else { Some(Document::open(&place)?) };
    let routed = document.as_mut().map(|document| use_upstream(document, &name)).transpose()?;
    let changes = document.as_ref().map(Document::changes).transpose()?;
    let prepared = match (&document, &changes) {
        (Some(document), Some(changes)) if !changes.is_nothing() => {
            Some(document.prepare(changes, &place)?)
        }
        _ => None,
    };
    let runtime = runtime()?;
    let credentials = joining.credentials()?;
    if !args.offline {
        joining.check(&runtime, &credentials)?;
    }
    let credentials = joining.keep_credentials(&credentials)?;
    if !args.offline && joining.is_new() {
        let seen = runtime.block_on(probe(&credentials, &joining.peer));
        match told(&seen, &token.address) {
            Told::Reached(said) => warn(&said),
            Told::Refused(why) => return Err(why.into()),
            Told::Unreached(why) => {
                warn(&format!("{why}\nthe relay here connects as soon as it gets through\n"));
            }
        }
    }
    let kept = joining.keep()?;
    if let Some(prepared) = prepared {
        kept.or_undo(prepared.commit())?;
    }
    let mut text = format!(
        "peer \"{name}\" at {}: this relay sends {}, receives {}\n",
        token.address, terms.send, terms.receive
    );
    match (&routed, &changes) {
        (None, _) => text.push_str(&by_hand(&name)),
        (_, Some(changes)) if changes.is_nothing() => {
            text.push_str(&format!("{} uses it as an upstream\n", place.config.display()));
        }
        (_, Some(changes)) => {
            text.push_str(&format!("{} has now:\n{}", place.config.display(), changes.lines));
        }
        _ => {}
    }
    if let Some(Routed::Other(chains)) = &routed {
        text.push_str(&format!(
            "a route sends everything through {chains}; add \"{name}\" to it, or put a route before it\n"
        ));
    }
    let told = if args.print { None } else { running::reload(&runtime, &place) };
    if let Some(told) = &told {
        text.push_str(&format!("{}\n", told.said));
    }
    let code = if told.is_some_and(|told| told.refused) { exit::NOT_FINE } else { exit::FINE };
    Ok(out(&text).max(code))
}

/// What is to be added by hand.
fn by_hand(name: &str) -> String {
    format!(
        "to use it as an upstream:\n  [upstream.{name}]\n  url = \"tunnel://{name}\"\n  [[route]]\n  through = [\"{name}\"]\n"
    )
}

/// The upstream and its route.
pub(crate) fn use_upstream(document: &mut Document, name: &str) -> Result<Routed, String> {
    document.upstream(name)?;
    document.route(name)
}

/// Warns of clocks that cannot be right.
pub(crate) fn say_clocks(token: &Token) {
    if let Some(why) = clock::behind().or_else(|| clock::invitation(token.made)) {
        warn(&format!("{why}\n"));
    }
}

/// A relay that invited this one, and what is known of it.
#[derive(Debug)]
pub(crate) struct Joining {
    store: Store,
    pub(crate) peer: Peer,
    old: Option<Peer>,
}

/// What was kept, and can be undone.
#[derive(Debug)]
pub(crate) struct Kept(Option<Joining>);

impl Joining {
    /// Errors: the invitation is this relay's own; another peer has that name; the store cannot be read.
    pub(crate) fn new(store: Store, peer: Peer) -> Result<Self, Box<dyn Error>> {
        let own = store.own_credentials()?.map(|own| fingerprint(&own.certificate().into()));
        if own.is_some() && own == fingerprint_of(&peer) {
            return Err("this invitation is this relay's own: paste the line on the other machine; nothing was written".into());
        }
        let old = store.peers()?.into_iter().find(|known| known.name == peer.name);
        if old.as_ref().is_some_and(|old| !is_same_relay(old, &peer)) {
            return Err(StoreError::Taken(peer.name).into());
        }
        Ok(Self { store, peer, old })
    }

    /// Whether the invitation was not used here before.
    pub(crate) fn is_new(&self) -> bool {
        self.old.as_ref().is_none_or(|old| old.kind != self.peer.kind)
    }

    /// Whether nothing is to be kept.
    pub(crate) fn is_done(&self) -> bool {
        self.old.as_ref() == Some(&self.peer)
    }

    /// Where that relay was joined before: whether this is the invitation that holds. Asks the daemon, or tries to reach
    /// the relay. Errors: it holds no more, or another one does, with what to do.
    pub(crate) fn check(&self, runtime: &Runtime, credentials: &Credentials) -> Result<(), String> {
        let Some(old) = &self.old else { return Ok(()) };
        let name = &self.peer.name;
        let tunnel = |tunnel: &TunnelStatus| tunnel.peer == *name && tunnel.up;
        let is_up = running::status(runtime).is_some_and(|seen| seen.tunnels.iter().any(tunnel));
        let seen = if is_up { None } else { Some(runtime.block_on(probe(credentials, old))) };
        let refused = seen.as_ref().and_then(|seen| seen.refused.as_ref());
        let holds = seen.as_ref().is_none_or(Probe::reached) && refused.is_none();
        match refused {
            Some(why) if !self.is_new() => Err(format!(
                "this invitation is no longer valid: \"{name}\" was joined by it, and refuses this relay now ({why})\n\
                 it was renewed or revoked there: ask for the new line, which `ekiden init shore` gives with --renew; nothing was written"
            )),
            _ if holds && self.is_new() => Err(format!(
                "\"{name}\" was joined by another invitation, which still holds; this one is older, or a second one\n\
                 nothing was written; to use it all the same: have this relay revoked there, then `ekiden peer revoke {name}` here, and this command again"
            )),
            _ => Ok(()),
        }
    }

    /// This relay's own; new ones, which nothing keeps yet, where it has none.
    pub(crate) fn credentials(&self) -> Result<Credentials, Box<dyn Error>> {
        Ok(match self.store.own_credentials()? {
            Some(own) => own,
            None => Credentials::generate()?,
        })
    }

    /// Keeps these unless this relay has others, and returns those that it has. To be called before the other relay is
    /// reached: the invitation is good for these alone from then on, whatever becomes of this program.
    pub(crate) fn keep_credentials(
        &self,
        made: &Credentials,
    ) -> Result<Credentials, Box<dyn Error>> {
        self.store.keep_credentials(made)?;
        Ok(self.store.credentials()?)
    }

    /// Keeps the peer.
    pub(crate) fn keep(self) -> Result<Kept, Box<dyn Error>> {
        if self.is_done() {
            return Ok(Kept(None));
        }
        self.store.put(self.peer.clone(), |old| is_same_relay(old, &self.peer))?;
        Ok(Kept(Some(self)))
    }
}

impl Kept {
    /// Undoes it where what came after failed.
    pub(crate) fn or_undo<T>(self, after: Result<T, String>) -> Result<T, String> {
        let Err(why) = after else { return after };
        let Some(Joining { store, peer, old }) = self.0 else { return Err(why) };
        let undone = match old {
            Some(old) => store.put(old, |_| true).map(drop),
            None => store.remove(&peer.name).map(drop),
        };
        Err(match undone {
            Ok(()) => why,
            Err(error) => format!("{why}; and the peer \"{}\" stays: {error}", peer.name),
        })
    }
}

fn is_same_relay(one: &Peer, other: &Peer) -> bool {
    fingerprint_of(one).is_some() && fingerprint_of(one) == fingerprint_of(other)
}

/// Of a relay that invited this one.
const fn fingerprint_of(peer: &Peer) -> Option<Fingerprint> {
    match &peer.kind {
        PeerKind::Joined { fingerprint, .. } => Some(*fingerprint),
        _ => None,
    }
}

/// A probe in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Reached(String),
    /// It was reached and takes no tunnel.
    Refused(String),
    Unreached(String),
}

/// What came of trying to reach `address`.
pub(crate) fn told(seen: &Probe, address: &str) -> Told {
    let port = address.rsplit_once(':').map_or(address, |(_, port)| port);
    if let Some(why) = &seen.refused {
        return Told::Refused(format!(
            "the relay at {address} was reached and refuses: {why}\nthe invitation may have been used or revoked: ask for another, which `ekiden init shore` gives with --renew; no peer was kept"
        ));
    }
    match (&seen.udp, &seen.tcp) {
        (Ok(rtt), Ok(())) => Told::Reached(format!(
            "reached {address} over UDP, round trip {}; over TCP, too\n",
            millis(*rtt)
        )),
        (Ok(rtt), Err(why)) => Told::Reached(format!(
            "reached {address} over UDP, round trip {}\nTCP port {port} is closed there ({why}): open it as the way out where UDP is blocked\n",
            millis(*rtt)
        )),
        (Err(why), Ok(())) => Told::Reached(format!(
            "reached {address} over TCP alone, which holds no rate across losses: open UDP port {port} there ({why})\n"
        )),
        (Err(udp), Err(tcp)) => Told::Unreached(format!(
            "{address} was not reached:\n  {}\n  {}\nis the relay running there, and are UDP and TCP port {port} open in its firewall?",
            over("UDP", udp),
            over("TCP", tcp),
        )),
    }
}

/// A reason with the protocol that it is of; a time-out does not name it.
fn over(protocol: &str, why: &str) -> String {
    if why.starts_with(protocol) { why.to_owned() } else { format!("{protocol} {why}") }
}

fn millis(span: Span) -> String {
    let micros = u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX);
    crate::print::rtt(micros)
}

/// A runtime for probes and questions to the daemon.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_protocol_of_each_failure() {
        let late = || "192.0.2.1:4433: no answer within 6 s".to_owned();
        let seen = Probe { udp: Err(late()), tcp: Err(format!("TCP {}", late())), refused: None };
        let Told::Unreached(said) = told(&seen, "192.0.2.1:4433") else { panic!("{seen:?}") };
        for line in ["\n  UDP 192.0.2.1:4433: no answer", "\n  TCP 192.0.2.1:4433: no answer"] {
            assert!(said.contains(line), "{said}");
        }
    }
}
