//! Options of the connection: window clamp, marks, segment size, times, Fast Open.

use super::*;

impl Applier<'_> {
    /// Linux (measured on 6.18) moves the clamp with the buffer. The handshake's scale lasts,
    /// though: the window stays below twice the clamp.
    pub(super) fn window_clamp(&mut self, size: u64) {
        let largest = (self.stage == Stage::Accepted)
            .then(|| TcpInfo::read(self.fd).ok())
            .flatten()
            .map_or(0, |info| 65_535_u64 << info.rcv_wscale);
        if largest < size.max(65_536).saturating_mul(2) {
            return self.int(Key::WindowClamp, clamped(size), size);
        }
        let name = libc::TCP_WINDOW_CLAMP;
        match sockopt::set_and_get(self.fd, IPPROTO_TCP, name, clamped(size)) {
            Err(errno) => self.refuse(Key::WindowClamp, errno),
            Ok(got) => self.number(Key::WindowClamp, (got as u32).into(), Refusal::ClampMoves),
        }
    }

    pub(super) fn dscp(&mut self, dscp: u8) {
        if dscp > 63 {
            return self.refuse(Key::Dscp, libc::EINVAL);
        }
        let set = |level, name| {
            let ecn = sockopt::get_int(self.fd, level, name)? & 3;
            sockopt::set_int(self.fd, level, name, c_int::from(dscp) << 2 | ecn)?;
            Ok(u64::from(sockopt::get_int(self.fd, level, name)? as u32 >> 2))
        };
        let mut result = set(IPPROTO_IP, libc::IP_TOS);
        if self.is_ipv6() {
            // both, since an IPv6 socket may carry IPv4
            result = result.and(set(IPPROTO_IPV6, libc::IPV6_TCLASS));
        }
        match result {
            Err(errno) => self.refuse(Key::Dscp, errno),
            Ok(got) => self.compare(Key::Dscp, u64::from(dscp), got, Refusal::Adjusted),
        }
    }

    pub(super) fn mss(&mut self, mss: u16) {
        if self.stage != Stage::Accepted {
            return self.int(Key::Mss, c_int::from(mss), u64::from(mss));
        }
        match sockopt::get_int(self.fd, IPPROTO_TCP, libc::TCP_MAXSEG) {
            Err(errno) => self.refuse(Key::Mss, errno),
            Ok(got) => {
                let got = u64::from(got as u32);
                // the segment in use: options (12 bytes of time stamps) or the peer may make it less
                let why = (got > u64::from(mss)).then_some(Refusal::SetOnListener);
                self.outcomes.push(Key::Mss, Granted::Number(got), why);
            }
        }
    }

    pub(super) fn times(&mut self, options: &SocketOptions) {
        let millis = |span: Span| span.as_nanos().div_ceil(1_000_000);
        if let Some(span) = options.user_timeout {
            self.time(Key::UserTimeout, millis(span), 1_000, span);
        }
        if let Some(span) = options.rto_max {
            self.time(Key::RtoMax, millis(span), 1_000, span);
        }
        if let Some(span) = options.rto_min {
            self.time(Key::RtoMin, span.as_nanos().div_ceil(1_000), 1, span);
        }
        let seconds = |span: Span| span.as_nanos().div_ceil(1_000_000_000).max(1);
        let idle = options.keepalive_idle.map(seconds);
        let interval = options.keepalive_interval.map(seconds);
        if idle.is_none() && interval.is_none() && options.keepalive_count.is_none() {
            return;
        }
        let on = sockopt::set_int(self.fd, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
        if let (Some(span), Some(seconds)) = (options.keepalive_idle, idle) {
            self.seconds(Key::KeepaliveIdle, seconds, span, on);
        }
        if let (Some(span), Some(seconds)) = (options.keepalive_interval, interval) {
            self.seconds(Key::KeepaliveInterval, seconds, span, on);
        }
        if let Some(count) = options.keepalive_count {
            match on {
                Ok(()) => self.int(Key::KeepaliveCount, c_int::from(count), u64::from(count)),
                Err(errno) => self.refuse(Key::KeepaliveCount, errno),
            }
        }
    }

    /// A time in `unit_us` microseconds each, kept by the kernel in clock ticks.
    pub(super) fn time(&mut self, key: Key, value: u64, unit_us: u64, asked: Span) {
        let Some((level, name)) = key.place() else { return };
        match sockopt::set_and_get(self.fd, level, name, clamped(value)) {
            Err(errno) => self.refuse(key, errno),
            Ok(got) => {
                let got = u64::from(got as u32);
                let got_us = got.saturating_mul(unit_us);
                if got_us.saturating_mul(1_000) == asked.as_nanos() {
                    return self.outcomes.granted_as_asked(key);
                }
                // rounding to the clock is no refusal; the value read back is reported all the same
                let near = got_us.abs_diff(asked.as_micros()) <= TICK_US;
                let why = (!near).then_some(Refusal::Adjusted);
                self.outcomes.push(key, Granted::Number(got), why);
            }
        }
    }

    pub(super) fn seconds(&mut self, key: Key, value: u64, asked: Span, on: Result<(), Errno>) {
        if let Err(errno) = on {
            return self.refuse(key, errno);
        }
        if value.saturating_mul(1_000_000_000) == asked.as_nanos() {
            return self.int(key, clamped(value), value);
        }
        // requested with a fraction: report the rounded value
        self.int_or(key, clamped(value), u64::MAX, Refusal::WholeSeconds);
    }

    pub(super) fn fast_open(&mut self, on: bool) {
        match self.stage {
            Stage::Accepted => self.not_here(Key::FastOpen, Refusal::NotOnAccepted),
            Stage::Connecting => self.int(Key::FastOpen, c_int::from(on), u64::from(on)),
            Stage::Listening => {
                let queue = if on { FAST_OPEN_QUEUE } else { 0 };
                let (level, name) = (IPPROTO_TCP, libc::TCP_FASTOPEN);
                match sockopt::set_and_get(self.fd, level, name, queue) {
                    Err(errno) => self.refuse(Key::FastOpen, errno),
                    // the kernel takes the queue and then never uses it without this bit
                    Ok(_)
                        if on && sysctl::number("net.ipv4.tcp_fastopen").unwrap_or(3) & 2 == 0 =>
                    {
                        self.number(Key::FastOpen, 0, Refusal::FastOpenOff);
                    }
                    Ok(got) => {
                        let got = u64::from(got > 0);
                        self.compare(Key::FastOpen, u64::from(on), got, Refusal::Adjusted);
                    }
                }
            }
        }
    }
}
