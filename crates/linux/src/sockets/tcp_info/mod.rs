//! `TCP_INFO`: the kernel's state of one TCP connection.
//!
//! [`TcpInfo::decode`] is pure; [`TcpInfo::read`] is one system call. Offsets and names are those
//! of `struct tcp_info` in Linux 6.18's `include/uapi/linux/tcp.h`. Fields were only ever appended:
//! an older kernel's answer is shorter.

use crate::sockets::sockopt;
use ekiden_model::units::Rate;
use serde::{Serialize, Serializer};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The length of the part that every kernel since 2.6 fills in, bytes.
pub const SHORTEST: usize = 104;

/// The length of Linux 6.18's structure, bytes; a newer kernel's is cut to it.
pub const LONGEST: usize = 280;

/// The kernel's limit of "no pacing", in `pacing_rate` and `max_pacing_rate`.
const UNPACED: u64 = u64::MAX;

macro_rules! tcp_info {
    (
        always { $($(#[$a_doc:meta])* $a:ident: $a_type:ident @ $a_at:literal,)* }
        later { $($(#[$b_doc:meta])* $b:ident: $b_type:ident @ $b_at:literal,)* }
    ) => {
        /// A snapshot of a connection. Names are the kernel's without `tcpi_`; a field added after
        /// Linux 2.6 is `None` when this kernel lacks it. "Segments" are the kernel's packets: one
        /// MSS each, whatever the network card joined.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub struct TcpInfo {
            /// State of the connection.
            pub state: TcpState,
            /// State of its congestion control.
            pub ca_state: CaState,
            /// Our window scale, 0…14: the peer's windows are shifted left by so much.
            pub snd_wscale: u8,
            /// The scale we announced, 0…14.
            pub rcv_wscale: u8,
            /// Whether `delivery_rate` was limited by the program and not by the network. Linux 4.9.
            pub delivery_rate_app_limited: bool,
            /// Why Fast Open was not used, 0…3: unknown, no cookie, data not acknowledged, SYN
            /// retransmitted (`enum tcp_fastopen_client_fail`). Linux 5.5.
            pub fastopen_client_fail: u8,
            $($(#[$a_doc])* pub $a: $a_type,)*
            $($(#[$b_doc])* pub $b: Option<$b_type>,)*
        }

        impl TcpInfo {
            /// Decodes the answer of `getsockopt(TCP_INFO)`; `None` below [`SHORTEST`] bytes.
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < SHORTEST {
                    return None;
                }
                let (first, second) = (bytes[6], bytes[7]);
                // bit fields start at the low bit on little-endian machines, at the high bit on others
                let little = cfg!(target_endian = "little");
                Some(Self {
                    state: TcpState::from_number(bytes[0]),
                    ca_state: CaState::from_number(bytes[1]),
                    snd_wscale: if little { first & 0x0f } else { first >> 4 },
                    rcv_wscale: if little { first >> 4 } else { first & 0x0f },
                    delivery_rate_app_limited: second & if little { 1 } else { 0x80 } != 0,
                    fastopen_client_fail: (second >> if little { 1 } else { 5 }) & 3,
                    $($a: at::$a_type(bytes, $a_at)?,)*
                    $($b: at::$b_type(bytes, $b_at),)*
                })
            }

            #[cfg(test)]
            const LATER: &'static [(&'static str, usize)] =
                &[$((stringify!($b), $b_at + size_of::<$b_type>()),)*];
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
        /// Unanswered zero-window or keep-alive probes.
        probes: u8 @ 3,
        /// How often the retransmission time-out was doubled.
        backoff: u8 @ 4,
        /// Negotiated options: see the `OPT_…` constants.
        options: u8 @ 5,
        /// Retransmission time-out, microseconds.
        rto: u32 @ 8,
        /// Predicted time-out of a delayed acknowledgement, microseconds.
        ato: u32 @ 12,
        /// Largest segment sent, bytes of payload.
        snd_mss: u32 @ 16,
        /// Largest segment received, bytes, as estimated.
        rcv_mss: u32 @ 20,
        /// Segments sent and not acknowledged; on a listening socket, connections waiting to be accepted.
        unacked: u32 @ 24,
        /// Of those, selectively acknowledged; on a listening socket, the limit of that queue.
        sacked: u32 @ 28,
        /// Of those, held for lost.
        lost: u32 @ 32,
        /// Of those, retransmitted and still out.
        retrans: u32 @ 36,
        /// Forward-most selective acknowledgement, segments; 0 since Linux 4.15.
        fackets: u32 @ 40,
        /// Since data was last sent, milliseconds.
        last_data_sent: u32 @ 44,
        /// Always 0: the kernel does not remember it.
        last_ack_sent: u32 @ 48,
        /// Since data was last received, milliseconds.
        last_data_recv: u32 @ 52,
        /// Since an acknowledgement was last received, milliseconds.
        last_ack_recv: u32 @ 56,
        /// Path MTU, bytes.
        pmtu: u32 @ 60,
        /// Receive window's slow-start threshold, bytes.
        rcv_ssthresh: u32 @ 64,
        /// Smoothed round-trip time, microseconds.
        rtt: u32 @ 68,
        /// Mean deviation of the round-trip time, microseconds.
        rttvar: u32 @ 72,
        /// Slow-start threshold, segments; 0x7fff_ffff before the first loss.
        snd_ssthresh: u32 @ 76,
        /// Congestion window, segments.
        snd_cwnd: u32 @ 80,
        /// MSS announced to the peer, bytes.
        advmss: u32 @ 84,
        /// How far segments may be reordered before they count as lost, segments.
        reordering: u32 @ 88,
        /// Round-trip time as the receiver estimates it, microseconds; 0 before there is one.
        rcv_rtt: u32 @ 92,
        /// Bytes that the program read in a round-trip time: the input of receive auto-tuning.
        rcv_space: u32 @ 96,
        /// Segments retransmitted since the start.
        total_retrans: u32 @ 100,
    }
    later {
        /// Pacing rate, bytes per second; all ones: not paced. Linux 3.15. See [`TcpInfo::pacing`].
        pacing_rate: u64 @ 104,
        /// `SO_MAX_PACING_RATE`, bytes per second; all ones: no limit. Linux 3.15.
        max_pacing_rate: u64 @ 112,
        /// Bytes acknowledged by the peer, and one for the SYN. Linux 4.1.
        bytes_acked: u64 @ 120,
        /// Bytes received in order. Linux 4.1.
        bytes_received: u64 @ 128,
        /// Segments sent, all kinds. Linux 4.2.
        segs_out: u32 @ 136,
        /// Segments received, all kinds. Linux 4.2.
        segs_in: u32 @ 140,
        /// Bytes written and not yet sent. Linux 4.6.
        notsent_bytes: u32 @ 144,
        /// Smallest round trip of the last `tcp_min_rtt_wlen` seconds, µs; all ones: none yet.
        /// Linux 4.6.
        min_rtt: u32 @ 148,
        /// Segments with data received. Linux 4.6.
        data_segs_in: u32 @ 152,
        /// Segments with data sent. Linux 4.6.
        data_segs_out: u32 @ 156,
        /// Latest goodput sample, bytes per second. Linux 4.9. See [`TcpInfo::delivery`].
        delivery_rate: u64 @ 160,
        /// Time with data outstanding, microseconds. Linux 4.9.
        busy_time: u64 @ 168,
        /// Of that, stopped by the peer's window, microseconds. Linux 4.9.
        rwnd_limited: u64 @ 176,
        /// Of that, stopped by a full send buffer, microseconds. Linux 4.9.
        sndbuf_limited: u64 @ 184,
        /// Segments delivered, retransmitted ones included. Linux 4.18.
        delivered: u32 @ 192,
        /// Of those, with congestion marks echoed. Linux 4.18.
        delivered_ce: u32 @ 196,
        /// Payload bytes sent, retransmitted ones included. Linux 4.19.
        bytes_sent: u64 @ 200,
        /// Payload bytes retransmitted. Linux 4.19.
        bytes_retrans: u64 @ 208,
        /// Duplicate selective acknowledgements received. Linux 4.19.
        dsack_dups: u32 @ 216,
        /// Reorderings seen. Linux 4.19.
        reord_seen: u32 @ 220,
        /// Segments received out of order. Linux 5.4.
        rcv_ooopack: u32 @ 224,
        /// The peer's window after scaling, bytes. Linux 5.4.
        snd_wnd: u32 @ 228,
        /// Our window after scaling, bytes. Linux 6.2.
        rcv_wnd: u32 @ 232,
        /// How often the path was changed by rehashing, by time-out or loss. Linux 6.2.
        rehash: u32 @ 236,
        /// Retransmission time-outs since the start. Linux 6.7.
        total_rto: u16 @ 240,
        /// Recoveries from a retransmission time-out. Linux 6.7.
        total_rto_recoveries: u16 @ 242,
        /// Time spent in those, milliseconds. Linux 6.7.
        total_rto_time: u32 @ 244,
        /// Segments received with a congestion mark (accurate ECN). Linux 6.18.
        received_ce: u32 @ 248,
        /// Bytes the peer acknowledged as received with ECT(1), modulo 2³². Linux 6.18.
        delivered_e1_bytes: u32 @ 252,
        /// The same with ECT(0). Linux 6.18.
        delivered_e0_bytes: u32 @ 256,
        /// The same with a congestion mark. Linux 6.18.
        delivered_ce_bytes: u32 @ 260,
        /// Bytes received with ECT(1), modulo 2³². Linux 6.18.
        received_e1_bytes: u32 @ 264,
        /// The same with ECT(0). Linux 6.18.
        received_e0_bytes: u32 @ 268,
        /// The same with a congestion mark. Linux 6.18.
        received_ce_bytes: u32 @ 272,
        /// Accurate ECN's failures, as bits. Linux 6.18; Linux 7 uses these bytes and the next two
        /// as a bit field: check the kernel's version first.
        accecn_fail_mode: u16 @ 276,
        /// Which accurate ECN option was seen. Linux 6.18, as above.
        accecn_opt_seen: u16 @ 278,
    }
}

impl TcpInfo {
    /// In `options`: time stamps (RFC 7323).
    pub const OPT_TIMESTAMPS: u8 = 1;
    /// In `options`: selective acknowledgements.
    pub const OPT_SACK: u8 = 2;
    /// In `options`: window scaling.
    pub const OPT_WSCALE: u8 = 4;
    /// In `options`: ECN was negotiated.
    pub const OPT_ECN: u8 = 8;
    /// In `options`: at least one ECN-capable packet was received.
    pub const OPT_ECN_SEEN: u8 = 16;
    /// In `options`: the peer acknowledged data in the SYN (TCP Fast Open was used).
    pub const OPT_SYN_DATA: u8 = 32;

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
        self.pacing_rate.filter(|rate| *rate != UNPACED).map(bytes_per_second)
    }

    /// The latest delivery rate; `None` when this kernel does not report it.
    pub fn delivery(&self) -> Option<Rate> {
        self.delivery_rate.map(bytes_per_second)
    }

    /// Smallest recent round-trip time, microseconds; `None` before the first sample.
    pub fn min_rtt_us(&self) -> Option<u32> {
        self.min_rtt.filter(|us| *us != u32::MAX)
    }

    /// Whether an option of the `OPT_…` constants was negotiated.
    pub const fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }
}

fn bytes_per_second(bytes: u64) -> Rate {
    Rate::from_bits_per_second(bytes.saturating_mul(8))
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

macro_rules! kernel_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$v_doc:meta])* $variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$v_doc])* $variant,)*
            /// A number this program does not know.
            Other(u8),
        }

        impl $name {
            /// From the kernel's number.
            pub const fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// The kernel's name, as `ESTABLISHED`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(_) => "UNKNOWN",
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    };
}

kernel_enum! {
    /// State of a connection (`include/net/tcp_states.h`).
    TcpState {
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
}

kernel_enum! {
    /// State of congestion control (`enum tcp_ca_state`).
    CaState {
        /// Nothing unusual.
        Open = 0, "OPEN";
        /// Duplicate acknowledgements seen.
        Disorder = 1, "DISORDER";
        /// The window is being reduced after a congestion mark or a local drop.
        Cwr = 2, "CWR";
        /// Fast recovery.
        Recovery = 3, "RECOVERY";
        /// After a retransmission time-out.
        Loss = 4, "LOSS";
    }
}

#[cfg(test)]
mod tests;
