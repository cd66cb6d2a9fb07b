//! How fast a socket sends: its congestion control, the rate it holds with others, its pacing rate.

use super::*;

impl Applier<'_> {
    /// The first that is granted. One that holds a rate is only where the socket has a part of it.
    pub(super) fn congestion(&mut self, names: &[String], group: Option<&Group>) {
        let mut refused: Vec<(u8, Refusal)> = Vec::new();
        let mut granted = None;
        let mut held = Err(Refusal::NotHeld);
        for (nth, name) in names.iter().enumerate() {
            let Ok(nth) = u8::try_from(nth) else {
                refused.push((u8::MAX, Refusal::TooMany));
                break;
            };
            let done = match group.filter(|group| group.control() == name) {
                Some(group) => {
                    held = self.hold(group);
                    held
                }
                None => self.choose(name),
            };
            match done {
                Ok(()) => {
                    granted = Some((nth, name));
                    break;
                }
                Err(why) => refused.push((nth, why)),
            }
        }
        if granted.is_none() && self.stage != Stage::Connecting && !self.inherited.foreign {
            self.leave();
        }
        if group.is_some() {
            match held {
                Ok(()) => self.outcomes.granted_as_asked(Key::Rate),
                Err(why) => self.not_here(Key::Rate, why),
            }
        }
        if names.is_empty() {
            return;
        }
        let got = sockopt::get_text(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION)
            .map_or(Granted::Nothing, |name| Granted::Name(name.into()));
        let last = refused.len().saturating_sub(1);
        for (i, (nth, why)) in refused.into_iter().enumerate() {
            // when none was granted, the last line states the socket's actual value
            let instead =
                if granted.is_none() && i == last { got.clone() } else { Granted::Nothing };
            self.outcomes.push_nth(Key::Congestion, nth, instead, Some(why));
        }
        if let Some((nth, name)) = granted {
            match got {
                Granted::Name(got) if *got == **name => {
                    self.outcomes.granted_nth(Key::Congestion, nth);
                }
                got => {
                    self.outcomes.push_nth(Key::Congestion, nth, got, Some(Refusal::Adjusted));
                }
            }
        }
    }

    pub(super) fn choose(&self, name: &str) -> Result<(), Refusal> {
        sockopt::set_bytes(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
            .map_err(Refusal::Errno)
    }

    /// Gives the socket its part before the congestion control, which is slow without one.
    pub(super) fn hold(&self, group: &Group) -> Result<(), Refusal> {
        if sockopt::get_int(self.fd, SOL_SOCKET, libc::SO_PROTOCOL) != Ok(IPPROTO_TCP) {
            return Err(Refusal::NotHeld);
        }
        if !group.is_current() {
            return Err(Refusal::Replaced);
        }
        // accepted sockets join one by one; a new connection counts as short for now
        if self.stage != Stage::Listening {
            let joined = group.join(self.fd, 1, Lane::Interactive);
            joined.map_err(|error| Refusal::Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))?;
        }
        self.choose(group.control())
    }

    /// An inherited program of ours that this leg does not ask for gives way to the system's
    /// default.
    pub(super) fn leave(&self) {
        let got = sockopt::get_text(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION);
        let Some(ours) = got.ok().filter(|name| Control::is_ours(name)) else { return };
        let default = sysctl::read("net.ipv4.tcp_congestion_control");
        // reno is in every kernel
        for name in default.iter().map(String::as_str).chain(["reno"]) {
            if name == ours || self.choose(name).is_ok() {
                return;
            }
        }
    }

    pub(super) fn pace(&mut self, bits_per_second: u64) {
        let bytes = bits_per_second / 8;
        if bytes == 0 {
            return self.not_here(Key::Pace, Refusal::NoPace);
        }
        match sockopt::set_pace(self.fd, bytes).and_then(|()| sockopt::get_pace(self.fd)) {
            Err(errno) => self.refuse(Key::Pace, errno),
            Ok(got) if got == bytes && bits_per_second.is_multiple_of(8) => {
                self.outcomes.granted_as_asked(Key::Pace);
            }
            Ok(got) => {
                let why = (got != bytes).then_some(Refusal::Adjusted);
                self.outcomes.push(Key::Pace, Granted::Number(got), why);
            }
        }
    }
}
