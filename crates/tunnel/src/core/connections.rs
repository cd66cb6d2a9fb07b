//! Events of an endpoint's QUIC connections and tunnels.

use super::*;

impl Endpoint {
    /// The next event, in order.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn lane(&mut self, handle: ConnectionHandle) -> Option<&mut Lane> {
        match self.lanes.get(&handle.0) {
            Some((id, nth)) => self.tunnels.get_mut(id)?.lanes[*nth].as_mut(),
            None => self.pending.get_mut(&handle.0).map(|stranger| &mut stranger.lane),
        }
    }

    pub(super) fn settle(&mut self, now: Time, handle: ConnectionHandle) {
        while let Some(event) = self.lane(handle).and_then(|lane| lane.quinn.poll_endpoint_events())
        {
            let drained = event.is_drained();
            let answer = self.quinn.handle_event(handle, event);
            let Some(lane) = self.lane(handle) else { break };
            lane.drained |= drained;
            if let Some(answer) = answer {
                lane.quinn.handle_event(answer);
                lane.busy = true;
            }
        }
        let Some(lane) = self.lane(handle) else { return };
        lane.poll_events();
        match self.lanes.get(&handle.0).copied() {
            Some((id, _)) => self.attend(now, id),
            None => self.poll_pending(now, handle),
        }
    }

    pub(super) fn attend(&mut self, now: Time, id: TunnelId) {
        let clock = self.instant(now);
        let Some(tunnel) = self.tunnels.get_mut(&id) else { return };
        let lost = tunnel.lanes.iter().flatten().find_map(|lane| lane.lost.clone());
        if lost.is_none() {
            tunnel.listen(now, clock);
        }
        self.events.append(&mut tunnel.events);
        if let Some(lost) = lost {
            self.end(now, id, code::OTHER_LANE, words(&lost));
        } else if let Some(broken) = tunnel.broken.take() {
            self.end(now, id, code::PROTOCOL, broken);
        }
    }

    /// Probes paths on which nothing is heard of packets in flight, and ends tunnels that hear
    /// nothing at all.
    pub(super) fn probe_and_close(&mut self, now: Time) {
        let mut ended = Vec::new();
        for tunnel in self.tunnels.values_mut() {
            tunnel.probe_if_silent(now);
            tunnel.watch_restraints(now);
            tunnel.watch_send_memory(now);
            tunnel.reset_orphans(now);
            tunnel.unmark(now);
            // another tunnel of its peer may have made it too much
            tunnel.count_memory();
            self.events.append(&mut tunnel.events);
            if let Some(broken) = tunnel.broken.take() {
                ended.push((tunnel.id, code::PROTOCOL, broken));
            } else if tunnel.is_silent(now) {
                ended.push((tunnel.id, code::OTHER_LANE, UNREACHABLE.to_owned()));
            }
        }
        for (id, code, reason) in ended {
            self.end(now, id, code, reason);
        }
    }

    pub(super) fn end(&mut self, now: Time, id: TunnelId, code: u32, reason: String) {
        let clock = self.instant(now);
        let Some(mut tunnel) = self.tunnels.remove(&id) else { return };
        self.address.tunnels.fetch_sub(1, Relaxed);
        // first: no panic in what follows leaves anybody waiting
        self.tell_end(&mut tunnel, &reason);
        let breaker = tunnel.hold.breaker();
        if breaker.snapshot().trips > 0 {
            locked(&self.address.breakers).insert(tunnel.peer, breaker.clone());
        }
        for mut lane in tunnel.lanes.into_iter().flatten() {
            let handle = lane.handle;
            self.lanes.remove(&handle.0);
            if lane.lost.is_none() {
                lane.close(clock, code, &reason);
            }
            if !lane.drained {
                lane.busy = true;
                lane.forget();
                self.pending.insert(handle.0, PendingConnection::closing(now, lane));
            }
        }
        self.forget_closing();
    }

    fn tell_end(&mut self, tunnel: &mut Tunnel, reason: &str) {
        self.events.append(&mut tunnel.events);
        let lost = |lane: &Lane| matches!(lane.lost, Some(ConnectionError::ApplicationClosed(_)));
        let by_peer = tunnel.lanes.iter().flatten().any(lost);
        let end = TunnelEnd { reason: reason.to_owned(), by_peer };
        self.events.push_back(Event::Down { tunnel: tunnel.id, peer: tunnel.peer, end });
        self.events.extend(tunnel.flows().map(Event::Flow));
    }

    /// Forgets every connection, because a step that panicked may have left some half changed: all tunnels end for this
    /// reason, without a word to their peers. Those who are admitted stay, and no number of a tunnel is used again.
    pub(crate) fn abandon(&mut self, reason: &str) {
        let alone = (self.listens, None);
        self.quinn = quinn(&self.credentials, &self.limits, alone, self.thread.clone());
        for mut tunnel in std::mem::take(&mut self.tunnels).into_values() {
            self.address.tunnels.fetch_sub(1, Relaxed);
            self.tell_end(&mut tunnel, reason);
        }
        self.pending.clear();
        self.lanes.clear();
        self.touched.clear();
        self.strangers.clear();
        self.joining.clear();
        self.replies.clear();
    }

    /// Snapshots of all tunnels. Each looks at all of its tunnel's flows.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.tunnels.values().map(Tunnel::snapshot).collect()
    }

    /// A snapshot of one tunnel, for the status; `None` where it has ended.
    pub fn snapshot(&self, tunnel: TunnelId) -> Option<Snapshot> {
        self.tunnels.get(&tunnel).map(Tunnel::snapshot)
    }

    /// A peer's tunnels that are up.
    pub fn tunnels_of(&self, peer: Fingerprint) -> impl Iterator<Item = TunnelId> {
        let of_peer = move |tunnel: &&Tunnel| tunnel.up && tunnel.peer == peer;
        self.tunnels.values().filter(of_peer).map(|tunnel| tunnel.id)
    }

    /// Nothing is held for flows that are no more.
    #[cfg(test)]
    pub(super) fn assert_balanced(&self) {
        self.tunnels.values().for_each(Tunnel::assert_balanced);
    }
}
