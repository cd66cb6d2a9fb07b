//! The options by name: configuration key, place in the kernel, notation of values.

use crate::sockets::options::SocketOptions;
use crate::sockets::sockopt::{TCP_RTO_MAX_MS, TCP_RTO_MIN_US};
use ekiden_model::units::{Bytes, Rate, Span};
use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};

macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $name:ident: $kernel:literal, $since:expr, $place:expr;)*) => {
        /// An option of a socket: a field of [`SocketOptions`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Key {
            $($(#[$doc])* #[doc = concat!("`", $kernel, "`")] $variant,)*
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

            /// Level and name of options that are one plain `int`.
            pub(crate) const fn place(self) -> Option<(c_int, c_int)> {
                match self {
                    $(Self::$variant => $place,)*
                }
            }

            /// The kernel's name, and the release that brought the option where that is not ancient.
            pub(crate) const fn kernel(self) -> (&'static str, Option<&'static str>) {
                match self {
                    $(Self::$variant => ($kernel, $since),)*
                }
            }

            /// As asked, or `None` when it was not; `nth` picks a congestion control.
            pub(crate) fn asked(self, options: &SocketOptions, nth: u8) -> Option<String> {
                match self {
                    $(Self::$variant => options.$name.text(nth),)*
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

const fn tcp(name: c_int) -> Option<(c_int, c_int)> {
    Some((IPPROTO_TCP, name))
}

const fn socket(name: c_int) -> Option<(c_int, c_int)> {
    Some((SOL_SOCKET, name))
}

// key = field: the kernel's name, the release that brought it, the place of a plain `int`
keys! {
    Congestion = congestion: "TCP_CONGESTION", None, None;
    Pace = pace: "SO_MAX_PACING_RATE", None, None;
    /// Membership of a group that holds a rate, by
    Rate = rate: "ekiden_hold", None, None;
    UnsentLowWater = notsent_lowat: "TCP_NOTSENT_LOWAT", None, tcp(libc::TCP_NOTSENT_LOWAT);
    SendBuffer = send_buffer: "SO_SNDBUF", None, socket(libc::SO_SNDBUF);
    /// `IPV6_TCLASS`,
    Dscp = dscp: "IP_TOS", None, None;
    ReceiveBuffer = receive_buffer: "SO_RCVBUF", None, socket(libc::SO_RCVBUF);
    WindowClamp = window_clamp: "TCP_WINDOW_CLAMP", None, tcp(libc::TCP_WINDOW_CLAMP);
    LockBuffers = lock_buffers: "SO_BUF_LOCK", Some("5.14"), socket(libc::SO_BUF_LOCK);
    Mss = mss: "TCP_MAXSEG", None, tcp(libc::TCP_MAXSEG);
    SynCount = syn_count: "TCP_SYNCNT", None, tcp(libc::TCP_SYNCNT);
    UserTimeout = user_timeout: "TCP_USER_TIMEOUT", None, tcp(libc::TCP_USER_TIMEOUT);
    RtoMax = rto_max: "TCP_RTO_MAX_MS", Some("6.15"), tcp(TCP_RTO_MAX_MS);
    RtoMin = rto_min: "TCP_RTO_MIN_US", Some("6.11"), tcp(TCP_RTO_MIN_US);
    KeepaliveIdle = keepalive_idle: "TCP_KEEPIDLE", None, tcp(libc::TCP_KEEPIDLE);
    KeepaliveInterval = keepalive_interval: "TCP_KEEPINTVL", None, tcp(libc::TCP_KEEPINTVL);
    KeepaliveCount = keepalive_count: "TCP_KEEPCNT", None, tcp(libc::TCP_KEEPCNT);
    NoDelay = no_delay: "TCP_NODELAY", None, tcp(libc::TCP_NODELAY);
    Mark = mark: "SO_MARK", None, socket(libc::SO_MARK);
    Device = device: "SO_BINDTODEVICE", None, None;
    /// The local address, by
    Source = source: "bind", None, None;
    /// `TCP_FASTOPEN` on listening sockets,
    FastOpen = fast_open: "TCP_FASTOPEN_CONNECT", Some("4.11"), tcp(libc::TCP_FASTOPEN_CONNECT);
    Mptcp = mptcp: "IPPROTO_MPTCP", Some("5.6"), None;
}

/// A field of [`SocketOptions`] as the configuration writes it.
trait Text {
    fn text(&self, nth: u8) -> Option<String>;
}

impl<T: ToString> Text for Option<T> {
    fn text(&self, _: u8) -> Option<String> {
        self.as_ref().map(T::to_string)
    }
}

impl Text for Vec<String> {
    fn text(&self, nth: u8) -> Option<String> {
        self.get(usize::from(nth)).cloned()
    }
}

impl Key {
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
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
            _ => number.to_string(),
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
