//! Datagrams that come out of a tunnel: a flow of packets to one destination, by this relay's own routes and
//! rules. It stands in the register and in the access log as a connection does.

use super::counts::{Counted, Loss};
use super::way::{Lost, Received, Way, Whose};
use super::{IN_A_ROW, wait};
use crate::access_log::AccessLog;
use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::households::Member;
use crate::registry::{Protocol, Registered, State, locked};
use crate::resources::Spare;
use crate::session::LogEntry;
use crate::tunnels::{destination, ended, reason};
use crate::world::World;
use bytes::Bytes;
use ekiden_linux::clock;
use ekiden_model::quota::Direction;
use ekiden_tunnel::driver::{Flow, Incoming};
use ekiden_tunnel::frame::Opening;
use ekiden_tunnel::reason::Reason;
use std::sync::Arc;
use tokio::sync::watch;

/// A flow of packets from its coming on. Dropped it is over, which its other end is told, and the log.
pub(crate) struct Served {
    world: Arc<World>,
    flow: Flow,
    opening: Opening,
    relay: String,
    registered: Registered,
    log: Arc<AccessLog>,
    entry: LogEntry,
    /// Its place in its household.
    share: Option<Arc<Member>>,
    answered: bool,
    counted: Counted,
    /// Why the first that was lost was lost.
    first_loss: Option<String>,
    /// Why it is over; nobody has said so where it was cut off.
    end: Option<End>,
}

enum End {
    /// In peace, or the other end said why.
    Closed(String),
    /// It may not go on, or never could.
    Failed(Failure),
}

impl Served {
    pub(crate) fn new(
        world: Arc<World>,
        incoming: Incoming,
        registered: Registered,
        log: Arc<AccessLog>,
    ) -> Self {
        let Incoming { flow, opening, relay } = incoming;
        let mut entry = LogEntry::new(Protocol::Udp, &registered);
        registered.set_protocol(Protocol::Udp);
        entry.method = Some(relay.clone());
        let counted = world.means.udp.flow();
        Self {
            world,
            flow,
            opening,
            relay,
            registered,
            log,
            entry,
            share: None,
            answered: false,
            counted,
            first_loss: None,
            end: None,
        }
    }

    /// Serves it to its end, or until this relay stops.
    pub(crate) async fn serve(mut self, mut stopping: watch::Receiver<bool>) {
        let end = tokio::select! {
            end = self.run() => end,
            _ = stopping.wait_for(|stopping| *stopping) => {
                End::Closed("the relay stops".to_owned())
            }
        };
        self.end = Some(end);
    }

    async fn run(&mut self) -> End {
        let (to, mut way, _place) = match self.begin() {
            Ok(begun) => begun,
            Err(failure) => return End::Failed(failure),
        };
        let idle = self.world.settings.udp.idle;
        let mut last = clock::now();
        loop {
            // strangers may send without a pause
            if clock::now() >= last + idle {
                return End::Closed(format!("silent for {idle}"));
            }
            let moved = tokio::select! {
                packet = self.flow.packet() => match packet {
                    Ok(packet) => self.hear_relay(&mut way, &to, &packet),
                    Err(over) => {
                        let failed = ended(&self.relay, over).err();
                        let why = failed.map_or_else(|| "closed".to_owned(), |failure| failure.text);
                        return End::Closed(why);
                    }
                },
                () = way.ready() => self.hear_way(&mut way),
                () = wait(last + idle) => continue,
            };
            match moved {
                Ok(true) => last = clock::now(),
                Ok(false) => {}
                Err(failure) => return End::Failed(failure),
            }
        }
    }

    /// Where it is to go, if it may, and by which way.
    fn begin(&mut self) -> Result<(Destination, Way, Spare), Failure> {
        let (world, relay) = (Arc::clone(&self.world), self.relay.clone());
        let to = destination(&self.opening.target)
            .ok_or_else(|| Failure::new(Kind::NoName, "the flow's destination is none"))?;
        self.registered.begin(Protocol::Udp, to.to_string());
        self.entry.target = Some(to.to_string());
        // a socket and its flow's share of everything else
        let place = world
            .means
            .resources
            .make_room()
            .ok_or_else(|| Failure::new(Kind::Exhausted, "all connections are at work"))?;
        let directory = world.directory.as_ref();
        let member = directory.and_then(|directory| directory.behind(&relay)).transpose();
        let member = member.map_err(|why| Failure::new(Kind::Denied, why))?;
        self.registered.set_member(member.clone());
        let whose = Whose::Relay(relay.clone(), member.clone());
        whose.decider(&world).unresolved(&to)?;
        let (households, entry) = (&world.means.households, &self.registered.entry);
        let share = match &member {
            Some(member) => households.admit_known(&member.name, Some(entry)).map(Some),
            None => households.receive(entry.client.ip(), Some(&relay), Some(entry)),
        };
        self.share = share.map_err(|not| Failure::new(Kind::Denied, not.to_string()))?;
        *locked(&entry.share) = self.share.as_ref().map(Arc::downgrade).unwrap_or_default();
        let route = world.route(&to);
        self.entry.through = route.tunnel().map(|hop| hop.name.clone()).into_iter().collect();
        self.registered.set_upstream_leg(Arc::clone(&self.entry.through), None);
        self.registered.set_route(&route.why);
        let way = Way::new(Arc::clone(&world), whose, self.opening.hops);
        Ok((to, way, place))
    }

    /// A packet of the flow's other end; that it came.
    fn hear_relay(
        &mut self,
        way: &mut Way,
        to: &Destination,
        packet: &Bytes,
    ) -> Result<bool, Failure> {
        if self.may_go(Direction::Up, packet.len())? {
            match way.send(to, packet) {
                Ok(true) => self.gone(packet.len()),
                // it waits for its name
                Ok(false) => {}
                Err(lost) => self.lost(lost)?,
            }
        }
        Ok(true)
    }

    /// Passes on what came back; whether anything did, or has gone meanwhile.
    fn hear_way(&mut self, way: &mut Way) -> Result<bool, Failure> {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let Some(received) = way.receive() else { break };
            match received {
                Ok(Received::Came(_, payload)) => {
                    moved = true;
                    self.deliver(payload)?;
                }
                Ok(Received::Sent(bytes)) => {
                    moved = true;
                    self.gone(bytes);
                }
                Err(lost) => self.lost(lost)?,
            }
        }
        Ok(moved)
    }

    fn deliver(&mut self, payload: Vec<u8>) -> Result<(), Failure> {
        let bytes = payload.len();
        if !self.may_go(Direction::Down, bytes)? {
            return Ok(());
        }
        if self.flow.send_packet(payload.into()) {
            self.counted.down();
            self.registered.moved(clock::now(), 0, bytes as u64, 0);
        } else {
            self.lose(Loss::Undelivered, || "too many wait for the tunnel".to_owned());
        }
        Ok(())
    }

    /// A datagram has gone out: the destination can be reached.
    fn gone(&mut self, bytes: usize) {
        self.counted.up();
        self.registered.moved(clock::now(), bytes as u64, 0, 0);
        if !self.answered {
            self.answered = true;
            self.entry.status = Some(0);
            self.registered.set_state(State::Relaying);
            self.flow.accept();
        }
    }

    /// Whether the household's limits let a datagram pass; if not, it is lost. `Err`: none any more.
    fn may_go(&mut self, direction: Direction, bytes: usize) -> Result<bool, Failure> {
        let Some(share) = &self.share else { return Ok(true) };
        let passes = share.datagram(direction, bytes).ok_or_else(|| {
            let why = share.ended().unwrap_or_else(|| "the household has nothing left".to_owned());
            Failure::new(Kind::Denied, why)
        })?;
        if !passes {
            self.lose(Loss::Limited, || "it is over its household's limits".to_owned());
        }
        Ok(passes)
    }

    /// What may not go to the flow's one destination ends the flow; all else is lost, as anywhere.
    fn lost(&mut self, lost: Lost) -> Result<(), Failure> {
        match lost {
            Lost::Refused(failure) => {
                self.counted.lost(Loss::Refused);
                Err(failure)
            }
            Lost::Undelivered(failure) => {
                self.lose(Loss::Undelivered, || failure.text);
                Ok(())
            }
        }
    }

    fn lose(&mut self, loss: Loss, why: impl FnOnce() -> String) {
        self.counted.lost(loss);
        self.first_loss.get_or_insert_with(why);
    }

    /// Why it was cut off.
    fn cut(&self) -> End {
        let member = self.registered.entry.member();
        let barred = match (&self.world.directory, &member) {
            (Some(directory), Some(member)) => directory.may_stay(member.id).err(),
            _ => None,
        };
        match barred.or_else(|| self.share.as_ref()?.ended()) {
            Some(why) => End::Failed(Failure::new(Kind::Denied, why)),
            None => End::Closed("cut off".to_owned()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| self.cut());
        let words = match end {
            End::Closed(why) => {
                self.flow.abort(Reason::Closed, why.clone());
                why
            }
            End::Failed(failure) => {
                self.flow.abort(reason(failure.kind), failure.text.clone());
                if !self.answered {
                    self.entry.status = Some(failure.socks() as u16);
                    if failure.is_refusal() {
                        self.registered.count_refused();
                    } else {
                        self.registered.count_failed();
                    }
                    return self.entry.write(&self.log, &self.registered, &failure.text);
                }
                failure.text
            }
        };
        let result = self.counted.in_words(&words, self.first_loss.as_deref());
        self.entry.write(&self.log, &self.registered, &result);
    }
}
