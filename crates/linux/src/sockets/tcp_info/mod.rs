//! `TCP_INFO`: the kernel's state of one TCP connection.
//!
//! [`TcpInfo::decode`] is pure; [`TcpInfo::read`] is one system call. Offsets and names are those
//! of `struct tcp_info` in Linux 6.18's `include/uapi/linux/tcp.h`, without the fields that nothing
//! here reads. Fields were only ever appended: an older kernel's answer is shorter.

use crate::sockets::sockopt;
use ekiden_model::units::Rate;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The length of the part that every kernel since 2.6 fills in, bytes.
pub const SHORTEST: usize = 104;

/// The length of Linux 6.18's structure, bytes; a newer kernel's is cut to it.
pub const LONGEST: usize = 280;

/// The kernel's limit of "no pacing", in `pacing_rate`.
const UNPACED: u64 = u64::MAX;

macro_rules! tcp_info {
    (
        always { $($(#[$a_doc:meta])* $a:ident: $a_type:ident @ $a_at:literal,)* }
        later { $($(#[$b_doc:meta])* $b:ident: $b_type:ident @ $b_at:literal,)* }
    ) => {
        /// A snapshot of a connection. Names are the kernel's without `tcpi_`; a field added after
        /// Linux 2.6 is `None` when this kernel lacks it. "Segments" are the kernel's packets: one
        /// MSS each, whatever the network card joined.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct TcpInfo {
            /// State of the connection.
            pub state: TcpState,
            /// The window scale we announced, 0…14.
            pub rcv_wscale: u8,
            $($(#[$a_doc])* pub $a: $a_type,)*
            $($(#[$b_doc])* pub $b: Option<$b_type>,)*
        }

        impl TcpInfo {
            /// Decodes the answer of `getsockopt(TCP_INFO)`; `None` below [`SHORTEST`] bytes.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < SHORTEST {
                    return None;
                }
                // bit fields start at the low bit on little-endian machines, at the high bit on others
                let little = cfg!(target_endian = "little");
                Some(Self {
                    state: TcpState::from_number(bytes[0]),
                    rcv_wscale: if little { bytes[6] >> 4 } else { bytes[6] & 0x0f },
                    $($a: at::$a_type(bytes, $a_at)?,)*
                    $($b: at::$b_type(bytes, $b_at),)*
                })
            }

            #[cfg(test)]
            const LATER: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($b), $b_at, $b_at + size_of::<$b_type>()),)*];
            #[cfg(test)]
            fn later(&self) -> Vec<Option<u64>> {
                vec![$(self.$b.map(u64::from),)*]
            }
        }
    };
}

tcp_info! {
    always {
        /// Retransmissions of the oldest unacknowledged segment by time-out, in a row.
        retransmits: u8 @ 2,
        /// How often the retransmission time-out was doubled.
        backoff: u8 @ 4,
        /// Negotiated options: see [`TcpInfo::OPT_TIMESTAMPS`].
        options: u8 @ 5,
        /// Retransmission time-out, microseconds.
        rto: u32 @ 8,
        /// Largest segment sent, bytes of payload.
        snd_mss: u32 @ 16,
        /// Largest segment received, bytes, as estimated.
        rcv_mss: u32 @ 20,
        /// Segments sent and not acknowledged; on a listening socket, connections waiting to be accepted.
        unacked: u32 @ 24,
        /// Path MTU, bytes.
        pmtu: u32 @ 60,
        /// Smoothed round-trip time, microseconds.
        rtt: u32 @ 68,
        /// Mean deviation of the round-trip time, microseconds.
        rttvar: u32 @ 72,
        /// Congestion window, segments.
        snd_cwnd: u32 @ 80,
        /// MSS announced to the peer, bytes.
        advmss: u32 @ 84,
        /// Round-trip time as the receiver estimates it, microseconds; 0 before there is one.
        rcv_rtt: u32 @ 92,
        /// Segments retransmitted since the start.
        total_retrans: u32 @ 100,
    }
    later {
        /// Pacing rate, bytes per second; all ones: not paced. Linux 3.15. See [`TcpInfo::pacing`].
        pacing_rate: u64 @ 104,
        /// Bytes acknowledged by the peer, and one for the SYN. Linux 4.1.
        bytes_acked: u64 @ 120,
        /// Bytes received in order. Linux 4.1.
        bytes_received: u64 @ 128,
        /// Bytes written and not yet sent. Linux 4.6.
        notsent_bytes: u32 @ 144,
        /// Smallest round trip of the last `tcp_min_rtt_wlen` seconds, µs; all ones: none yet.
        /// Linux 4.6.
        min_rtt: u32 @ 148,
        /// Segments with data sent. Linux 4.6.
        data_segs_out: u32 @ 156,
        /// Latest goodput sample, bytes per second. Linux 4.9.
        delivery_rate: u64 @ 160,
        /// Time with data outstanding, microseconds. Linux 4.9.
        busy_time: u64 @ 168,
        /// Of that, stopped by a full send buffer, microseconds. Linux 4.9.
        sndbuf_limited: u64 @ 184,
        /// Segments delivered, retransmitted ones included. Linux 4.18.
        delivered: u32 @ 192,
        /// Payload bytes sent, retransmitted ones included. Linux 4.19.
        bytes_sent: u64 @ 200,
        /// Payload bytes retransmitted. Linux 4.19.
        bytes_retrans: u64 @ 208,
        /// Duplicate selective acknowledgements received. Linux 4.19.
        dsack_dups: u32 @ 216,
        /// The peer's window after scaling, bytes. Linux 5.4.
        snd_wnd: u32 @ 228,
        /// Our window after scaling, bytes. Linux 6.2.
        rcv_wnd: u32 @ 232,
        /// Retransmission time-outs since the start. Linux 6.7.
        total_rto: u16 @ 240,
    }
}

impl TcpInfo {
    /// In `options`: time stamps (RFC 7323).
    pub const OPT_TIMESTAMPS: u8 = 1;

    /// Reads it from a TCP socket: one system call. Errors: `getsockopt`'s errors: `ENOPROTOOPT` or
    /// `EOPNOTSUPP` when it is not a TCP socket.
    pub fn read(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0_u8; LONGEST];
        let length = sockopt::get_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)
            .map_err(io::Error::from_raw_os_error)?;
        let filled = bytes.get(..length).unwrap_or(&bytes);
        Self::decode(filled).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("TCP_INFO of {length} bytes"))
        })
    }

    /// The pacing rate on the wire's payload; `None` when not paced or not known.
    pub fn pacing(&self) -> Option<Rate> {
        let bytes = self.pacing_rate.filter(|rate| *rate != UNPACED)?;
        Some(Rate::from_bits_per_second(bytes.saturating_mul(8)))
    }

    /// Smallest recent round-trip time, microseconds; `None` before the first sample.
    pub fn min_rtt_us(&self) -> Option<u32> {
        self.min_rtt.filter(|us| *us != u32::MAX)
    }

    /// Whether an option was negotiated.
    pub const fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }
}

/// Numbers at an offset, in the machine's byte order; `None` past the end.
mod at {
    pub(crate) fn u8(bytes: &[u8], at: usize) -> Option<u8> {
        bytes.get(at).copied()
    }
    pub(crate) fn u16(bytes: &[u8], at: usize) -> Option<u16> {
        bytes.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
    }
    pub(crate) fn u32(bytes: &[u8], at: usize) -> Option<u32> {
        bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
    }
    pub(crate) fn u64(bytes: &[u8], at: usize) -> Option<u64> {
        bytes.get(at..)?.first_chunk().map(|chunk| u64::from_ne_bytes(*chunk))
    }
}

macro_rules! states {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $text:literal;)*) => {
        /// State of a connection (`include/net/tcp_states.h`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TcpState {
            $($(#[$doc])* $variant,)*
            /// A number this program does not know.
            Other(u8),
        }

        impl TcpState {
            /// From the kernel's number.
            pub const fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        /// The kernel's name, as `ESTABLISHED`.
        impl fmt::Display for TcpState {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $text,)*
                    Self::Other(_) => "UNKNOWN",
                })
            }
        }
    };
}

states! {
    /// Data may move.
    Established = 1, "ESTABLISHED";
    /// SYN sent.
    SynSent = 2, "SYN_SENT";
    /// SYN received.
    SynRecv = 3, "SYN_RECV";
    /// We ended; our FIN is not acknowledged.
    FinWait1 = 4, "FIN_WAIT1";
    /// We ended; the peer has not.
    FinWait2 = 5, "FIN_WAIT2";
    /// Both ended; late segments are waited for.
    TimeWait = 6, "TIME_WAIT";
    /// Not connected.
    Close = 7, "CLOSE";
    /// The peer ended; we have not.
    CloseWait = 8, "CLOSE_WAIT";
    /// Both ended; our FIN is not acknowledged.
    LastAck = 9, "LAST_ACK";
    /// Waiting for connections.
    Listen = 10, "LISTEN";
    /// Both ended at once.
    Closing = 11, "CLOSING";
    /// SYN received, no socket yet.
    NewSynRecv = 12, "NEW_SYN_RECV";
    /// Bound and idle (shown by diagnostics only).
    BoundInactive = 13, "BOUND_INACTIVE";
}

#[cfg(test)]
mod tests;
