//! The options by name: configuration key, place in the kernel, notation of values.

use crate::sockets::options::SocketOptions;
use crate::sockets::sockopt::{TCP_RTO_MAX_MS, TCP_RTO_MIN_US};
use ekiden_model::units::{Bytes, Rate, Span};
use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};

macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $name:ident;)*) => {
        /// An option of a socket: a field of [`SocketOptions`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Key {
            $($(#[$doc])* $variant,)*
        }

        impl Key {
            /// Every option, in the order of [`SocketOptions`].
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$variant),*];

            /// The configuration's key, as `send_buffer`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)*
                }
            }
        }

        /// Fails to build when a field of the options has no key.
        #[cfg(test)]
        fn every_field(options: SocketOptions) {
            let SocketOptions { $($name: _,)* } = options;
        }
    };
}

keys! {
    /// `TCP_CONGESTION`
    Congestion = congestion;
    /// `SO_MAX_PACING_RATE`
    Pace = pace;
    /// Membership of a group that holds a rate
    Rate = rate;
    /// `TCP_NOTSENT_LOWAT`
    UnsentLowWater = notsent_lowat;
    /// `SO_SNDBUF`
    SendBuffer = send_buffer;
    /// `IP_TOS`, `IPV6_TCLASS`
    Dscp = dscp;
    /// `SO_RCVBUF`
    ReceiveBuffer = receive_buffer;
    /// `TCP_WINDOW_CLAMP`
    WindowClamp = window_clamp;
    /// `SO_BUF_LOCK`
    LockBuffers = lock_buffers;
    /// `TCP_MAXSEG`
    Mss = mss;
    /// `TCP_SYNCNT`
    SynCount = syn_count;
    /// `TCP_USER_TIMEOUT`
    UserTimeout = user_timeout;
    /// `TCP_RTO_MAX_MS`
    RtoMax = rto_max;
    /// `TCP_RTO_MIN_US`
    RtoMin = rto_min;
    /// `TCP_KEEPIDLE`
    KeepaliveIdle = keepalive_idle;
    /// `TCP_KEEPINTVL`
    KeepaliveInterval = keepalive_interval;
    /// `TCP_KEEPCNT`
    KeepaliveCount = keepalive_count;
    /// `TCP_NODELAY`
    NoDelay = no_delay;
    /// `SO_MARK`
    Mark = mark;
    /// `SO_BINDTODEVICE`
    Device = device;
    /// The local address
    Source = source;
    /// `TCP_FASTOPEN`, `TCP_FASTOPEN_CONNECT`
    FastOpen = fast_open;
    /// `IPPROTO_MPTCP`
    Mptcp = mptcp;
}

impl Key {
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Level and name of options that are one plain `int`.
    pub(crate) const fn place(self) -> Option<(c_int, c_int)> {
        Some(match self {
            Self::UnsentLowWater => (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
            Self::SendBuffer => (SOL_SOCKET, libc::SO_SNDBUF),
            Self::ReceiveBuffer => (SOL_SOCKET, libc::SO_RCVBUF),
            Self::WindowClamp => (IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
            Self::LockBuffers => (SOL_SOCKET, libc::SO_BUF_LOCK),
            Self::Mss => (IPPROTO_TCP, libc::TCP_MAXSEG),
            Self::SynCount => (IPPROTO_TCP, libc::TCP_SYNCNT),
            Self::UserTimeout => (IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
            Self::RtoMax => (IPPROTO_TCP, TCP_RTO_MAX_MS),
            Self::RtoMin => (IPPROTO_TCP, TCP_RTO_MIN_US),
            Self::KeepaliveIdle => (IPPROTO_TCP, libc::TCP_KEEPIDLE),
            Self::KeepaliveInterval => (IPPROTO_TCP, libc::TCP_KEEPINTVL),
            Self::KeepaliveCount => (IPPROTO_TCP, libc::TCP_KEEPCNT),
            Self::NoDelay => (IPPROTO_TCP, libc::TCP_NODELAY),
            Self::Mark => (SOL_SOCKET, libc::SO_MARK),
            Self::FastOpen => (IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
            Self::Congestion
            | Self::Pace
            | Self::Rate
            | Self::Dscp
            | Self::Device
            | Self::Source
            | Self::Mptcp => return None,
        })
    }

    /// The kernel's name, and the release that brought the option where that is not ancient.
    pub(crate) const fn kernel(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Congestion => ("TCP_CONGESTION", None),
            Self::Pace => ("SO_MAX_PACING_RATE", None),
            Self::Rate => ("ekiden_hold", None),
            Self::UnsentLowWater => ("TCP_NOTSENT_LOWAT", None),
            Self::SendBuffer => ("SO_SNDBUF", None),
            Self::Dscp => ("IP_TOS", None),
            Self::ReceiveBuffer => ("SO_RCVBUF", None),
            Self::WindowClamp => ("TCP_WINDOW_CLAMP", None),
            Self::LockBuffers => ("SO_BUF_LOCK", Some("5.14")),
            Self::Mss => ("TCP_MAXSEG", None),
            Self::SynCount => ("TCP_SYNCNT", None),
            Self::UserTimeout => ("TCP_USER_TIMEOUT", None),
            Self::RtoMax => ("TCP_RTO_MAX_MS", Some("6.15")),
            Self::RtoMin => ("TCP_RTO_MIN_US", Some("6.11")),
            Self::KeepaliveIdle => ("TCP_KEEPIDLE", None),
            Self::KeepaliveInterval => ("TCP_KEEPINTVL", None),
            Self::KeepaliveCount => ("TCP_KEEPCNT", None),
            Self::NoDelay => ("TCP_NODELAY", None),
            Self::Mark => ("SO_MARK", None),
            Self::Device => ("SO_BINDTODEVICE", None),
            Self::Source => ("bind", None),
            Self::FastOpen => ("TCP_FASTOPEN_CONNECT", Some("4.11")),
            Self::Mptcp => ("IPPROTO_MPTCP", Some("5.6")),
        }
    }

    /// Accepted values, for those that the kernel calls invalid.
    pub(crate) const fn range(self) -> &'static str {
        match self {
            Self::Mss => "88 B to 32767 B",
            Self::SynCount | Self::KeepaliveCount => "1 to 127",
            Self::KeepaliveIdle | Self::KeepaliveInterval => "1 s to 32767 s",
            Self::RtoMax => "1 s to 120 s",
            Self::RtoMin => "two clock ticks (2 ms to 20 ms) to 200 ms",
            Self::Dscp => "0 to 63",
            _ => "another value",
        }
    }

    /// As asked, or `None` when it was not; `nth` picks a congestion control.
    pub(crate) fn asked(self, options: &SocketOptions, nth: u8) -> Option<String> {
        fn text<T: ToString>(value: Option<T>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        match self {
            Self::Congestion => text(options.congestion.get(usize::from(nth))),
            Self::Pace => text(options.pace),
            Self::Rate => text(options.rate.as_ref()),
            Self::UnsentLowWater => text(options.notsent_lowat),
            Self::SendBuffer => text(options.send_buffer),
            Self::Dscp => text(options.dscp),
            Self::ReceiveBuffer => text(options.receive_buffer),
            Self::WindowClamp => text(options.window_clamp),
            Self::LockBuffers => text(options.lock_buffers),
            Self::Mss => text(options.mss),
            Self::SynCount => text(options.syn_count),
            Self::UserTimeout => text(options.user_timeout),
            Self::RtoMax => text(options.rto_max),
            Self::RtoMin => text(options.rto_min),
            Self::KeepaliveIdle => text(options.keepalive_idle),
            Self::KeepaliveInterval => text(options.keepalive_interval),
            Self::KeepaliveCount => text(options.keepalive_count),
            Self::NoDelay => text(options.no_delay),
            Self::Mark => text(options.mark),
            Self::Device => text(options.device.as_ref()),
            Self::Source => text(options.source),
            Self::FastOpen => text(options.fast_open),
            Self::Mptcp => text(options.mptcp),
        }
    }

    /// A number of the kernel's option, as the configuration would write it.
    pub(crate) fn text(self, number: u64) -> String {
        match self {
            Self::Pace if number == u64::MAX => "unlimited".into(),
            Self::Pace => Rate::from_bits_per_second(number.saturating_mul(8)).to_string(),
            Self::UnsentLowWater if number == u64::from(u32::MAX) => "unlimited".into(),
            Self::UnsentLowWater | Self::SendBuffer | Self::ReceiveBuffer | Self::WindowClamp => {
                Bytes::new(number).to_string()
            }
            Self::UserTimeout | Self::RtoMax => Span::from_millis(number).to_string(),
            Self::RtoMin => Span::from_micros(number).to_string(),
            Self::KeepaliveIdle | Self::KeepaliveInterval => Span::from_secs(number).to_string(),
            Self::LockBuffers | Self::NoDelay | Self::FastOpen | Self::Mptcp => {
                (number != 0).to_string()
            }
            Self::Congestion
            | Self::Rate
            | Self::Dscp
            | Self::Mss
            | Self::SynCount
            | Self::KeepaliveCount
            | Self::Mark
            | Self::Device
            | Self::Source => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_options_has_a_key() {
        every_field(SocketOptions::default());
        for key in Key::ALL {
            assert_eq!(key.asked(&SocketOptions::default(), 0), None, "{}", key.name());
        }
        let bits = Key::ALL.iter().fold(0_u64, |bits, key| bits | u64::from(key.bit()));
        assert_eq!(bits.count_ones() as usize, Key::ALL.len());
    }
}
