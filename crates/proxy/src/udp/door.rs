//! Datagrams that come out of a tunnel: a flow of packets to one destination, by this relay's own routes and
//! rules.

use super::way::{Lost, Received, Way, Whose};
use super::{IN_A_ROW, wait};
use crate::tunnels::{destination, reason, refuse};
use crate::world::World;
use ekiden_linux::clock;
use ekiden_model::quota::Direction;
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::reason::Reason;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Serves a flow of packets to its end.
pub(crate) async fn serve(world: Arc<World>, incoming: Incoming) {
    let Incoming { flow, opening, relay } = incoming;
    let Some(to) = destination(&opening.target) else {
        return refuse(flow, Reason::NoName, "the flow's destination is none");
    };
    // a socket and its flow's share of everything else
    let Some(_place) = world.means.resources.make_room() else {
        return refuse(flow, Reason::Exhausted, "all connections are at work");
    };
    let directory = world.directory.clone();
    let member = match directory.as_ref().and_then(|directory| directory.behind(&relay)).transpose()
    {
        Ok(member) => member,
        Err(why) => return refuse(flow, Reason::Denied, &why),
    };
    let whose = Whose::Relay(relay.clone(), member.clone());
    if let Err(denied) = whose.decider(&world).unresolved(&to) {
        tracing::debug!(%relay, %to, "datagrams refused: {denied}");
        return refuse(flow, Reason::Denied, &denied.to_string());
    }
    let nowhere = Ipv4Addr::UNSPECIFIED.into();
    let households = &world.means.households;
    let share = match &member {
        Some(member) => households.admit_known(&member.name, None).map(Some),
        None => households.receive(nowhere, Some(&relay), None),
    };
    let share = match share {
        Ok(share) => share,
        Err(not) => {
            tracing::debug!(%relay, %to, "datagrams refused: {not}");
            return refuse(flow, Reason::Denied, &not.to_string());
        }
    };
    tracing::debug!(%relay, %to, "datagrams through a tunnel begin");
    let counts = Arc::clone(&world.means.udp);
    // the household's limits; `None`: it is over
    let may_go = |direction, bytes| {
        let passes = share.as_ref().map_or(Some(true), |share| share.datagram(direction, bytes));
        if passes == Some(false) {
            counts.limited();
        }
        passes
    };
    let idle = world.settings.udp.idle;
    let mut way = Way::new(world, whose, opening.hops);
    let may_stay = || match (&directory, &member) {
        (Some(directory), Some(member)) => directory.may_stay(member.id).is_ok(),
        _ => true,
    };
    let mut answered = false;
    let mut last = clock::now();
    loop {
        tokio::select! {
            packet = flow.packet() => {
                let Ok(packet) = packet else { return };
                // it stands in no register from which it could be ended
                if !may_stay() {
                    return;
                }
                match may_go(Direction::Up, packet.len()) {
                    Some(true) => {}
                    Some(false) => continue,
                    None => return refuse(flow, Reason::Denied, "the household is not served any more"),
                }
                match way.send(&to, &packet) {
                    Err(Lost::Refused(failure)) if !answered => {
                        return refuse(flow, reason(failure.kind), &failure.text);
                    }
                    // lost, as anywhere
                    Err(Lost::Refused(_) | Lost::Undelivered(_)) | Ok(_) => {}
                }
            }
            () = way.ready() => for n in 0..IN_A_ROW {
                // who only listens is looked at, too
                if n == 0 && !may_stay() {
                    return;
                }
                match way.receive() {
                    Some(Ok(Received::Came(_, payload))) => {
                        match may_go(Direction::Down, payload.len()) {
                            Some(true) => {
                                // lost, as anywhere
                                let _ = flow.send_packet(payload.into());
                            }
                            Some(false) => {}
                            None => return,
                        }
                    }
                    Some(Ok(Received::Sent(_)) | Err(Lost::Undelivered(_))) => {}
                    Some(Err(Lost::Refused(failure))) if !answered => {
                        return refuse(flow, reason(failure.kind), &failure.text);
                    }
                    Some(Err(Lost::Refused(_))) => {}
                    None => break,
                }
            },
            () = wait(last + idle) => return,
        }
        last = clock::now();
        if !answered {
            answered = true;
            flow.accept();
        }
    }
}
