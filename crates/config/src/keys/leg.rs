//! The keys of `[leg.NAME]`.

use super::key::{Key, keys};
use crate::draft::LegDraft;
use crate::keys::{HOUR, MS, SECOND, some_name};
use crate::value::Word as _;
use crate::value::kind::{Check, Kind};
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_proxy::settings::InitialRto;

const KERNEL: Option<&str> = Some("kernel");
const BUFFER: Kind = Kind::Size(Bytes::kib(4), Bytes::mib(1024));

/// A name that goes to the kernel: printable and short.
const KERNEL_NAME: Check = |text| {
    let fine = !text.is_empty()
        && text.len() <= 15
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:@".contains(&b));
    if fine {
        Ok(())
    } else {
        Err("a name the kernel knows: 1 to 15 letters, digits, `_-.:@`".to_owned())
    }
};

pub(crate) static LEG: &[Key<LegDraft>] = keys! { LegDraft, |leg| leg;
    inherit = inherit: Kind::Text("the name of a leg", some_name), Some(""),
        "Another leg whose keys apply here too, unless set here.",
        "None.", "Several legs that differ little.";
    connect_timeout = leg.connect_timeout: Kind::Span(MS, Span::from_secs(600)), None,
        "Time limit for connecting, all addresses of the name together.",
        "If too short, distant or lossy destinations are unreachable; if too long, failover waits.",
        "Frequent SYN loss: longer. Another upstream available: shorter.";
    establish_timeout = leg.establish_timeout: Kind::Span(Span::from_millis(100), Span::from_secs(600)), Some("connect_timeout"),
        "Time limit for one address to answer. user_timeout applies only to data and does not shorten it.",
        "If too short, it abandons a lossy path that the next SYN would have opened.",
        "Another address or upstream available: \"5 s\".";
    initial_rto = leg.initial_rto: Kind::Choice(InitialRto::WORDS), None,
        "Time before a SYN is retransmitted. \"cached\": 200 ms to 1 s, from earlier handshakes with the destination (its /24 or /48). \"kernel\": always 1 s.",
        "A second socket while the first waits. If the round-trip time suddenly doubles, one wasted SYN per second and destination.",
        "\"kernel\" if every SYN counts, for example behind a firewall that limits them.";
    second_syn = leg.second_syn: Kind::Switch, None,
        "Sends a second SYN max(20 ms, RTO/8) after an unanswered first one, at most one per second and destination. It needs at least 1 % of recent handshakes lost, for the destination or its leg.",
        "Up to twice the SYNs; if the second loses the race, the answer to it is reset.",
        "Legs that lose several percent and open few connections to each destination.";
    spread = leg.spread: Kind::Switch, None,
        "On paths of 128 ms and more, the kernel spreads sending over the round trip. With bursts, CUBIC leaves slow start early: one stream over 200 Mbit/s and 600 ms reached 116 Mbit/s, spread 191.",
        "A kernel timer each millisecond for each busy socket.",
        "Rarely needed: BBR paces by itself, and `pace` works on any path.";
    idle_timeout = leg.idle_timeout: Kind::Span(SECOND, HOUR.saturating_mul(24 * 30)), None,
        "Idle time after which a connection is closed. The shorter of its two legs counts.",
        "A longer time holds descriptors and kernel memory for clients that are gone.",
        "Long ssh sessions: longer. A busy proxy short of descriptors: shorter.";
    half_closed_timeout = leg.half_closed_timeout: Kind::Span(SECOND, HOUR.saturating_mul(24)), None,
        "Idle time after which a half-closed connection is closed.",
        "If too short, it cuts a slow answer to a finished request.",
        "Rarely needed.";
    congestion = leg.socket.congestion: Kind::Words("a congestion control such as \"bbr\"", KERNEL_NAME), KERNEL,
        "TCP_CONGESTION for sending on the leg: the first of the list that the kernel grants.",
        "bbr needs pacing (fq or the kernel's own timers) and can be unfair to loss-based flows.",
        "Lossy or long legs: \"bbr\". `ekiden doctor` lists those this kernel allows. Ekiden adds \"hold\" (a fixed rate, see `rate`) and \"westwood\".";
    rate = leg.rate: Kind::Rate(Rate::from_bits_per_second(64_000)), Some("none"),
        "The rate of all connections of the leg together when \"hold\" is their congestion control. It counts IP packets including retransmissions, and is divided at each acknowledgement among connections with data to send.",
        "Random loss does not reduce it. A growing queue, or much more loss than the path's own, reduces it for some round trips. It hardly yields to other traffic on the link.",
        "If a link, or part of one, is yours: `congestion = [\"hold\", \"bbr\"]`, `rate = \"4 Mbit/s\"`. A leg that inherits it holds its own rate.";
    line = leg.line: Kind::Rate(Rate::from_bits_per_second(64_000)), Some("shared"),
        "The rate of the link that carries `rate`, if all of it is yours. Retransmissions are then sent on top of the rate, up to this and 1.25 x `rate`. The minimum is 64 kbit/s instead of a tenth.",
        "On a shared link this starves other traffic.",
        "Links with an allotment below their capacity.";
    pace = leg.socket.pace: Kind::Rate(Rate::from_bits_per_second(8_000)), KERNEL,
        "SO_MAX_PACING_RATE: the maximum rate of each socket, in payload bits per second.",
        "If too low, the leg is slower.",
        "If the link's rate is known and its buffer is short or far too long.";
    notsent_lowat = leg.socket.notsent_lowat: Kind::Size(Bytes::kib(1), Bytes::mib(1024)), KERNEL,
        "TCP_NOTSENT_LOWAT: bytes written and not yet sent beyond which the socket is not writable.",
        "A small value keeps queues short and costs wake-ups; far too small loses throughput.",
        "If interactive and bulk data share a connection, try 128 KiB.";
    send_buffer = leg.socket.send_buffer: BUFFER, KERNEL,
        "SO_SNDBUF (SNDBUFFORCE if privileged). The kernel doubles the value it gets, so ekiden passes half.",
        "Disables send auto-tuning; below rate x RTT the leg is slower.",
        "Long legs on machines whose net.ipv4.tcp_wmem cannot be raised.";
    dscp = leg.socket.dscp: Kind::Number(0, 63), KERNEL,
        "DSCP of packets sent on the leg: 46 is EF, 10 AF11, 8 CS1; the ECN bits are left alone.",
        "Networks may ignore or police it.",
        "If the network has traffic classes.";
    receive_buffer = leg.socket.receive_buffer: BUFFER, KERNEL,
        "SO_RCVBUF (RCVBUFFORCE if privileged), set before connecting or listening.",
        "Disables receive auto-tuning; below rate x RTT the leg is slower.",
        "Long legs on machines whose net.ipv4.tcp_rmem cannot be raised.";
    window_clamp = leg.socket.window_clamp: Kind::Size(Bytes::kib(2), Bytes::mib(1024)), KERNEL,
        "TCP_WINDOW_CLAMP: the largest advertised window, which limits data in flight towards this machine.",
        "Below rate x RTT the leg is slower.",
        "To keep a remote bottleneck queue short from the receiving side.";
    lock_buffers = leg.socket.lock_buffers: Kind::Switch, KERNEL,
        "SO_BUF_LOCK: whether buffers set here are exempt from auto-tuning. false returns them to it.",
        "None.", "With send_buffer or receive_buffer as a starting size: false.";
    mss = leg.socket.mss: Kind::Number(88, 32_767), KERNEL,
        "TCP_MAXSEG in bytes: the largest segment, announced in the SYN.",
        "Smaller segments, more packets and acknowledgements.",
        "If a path's MTU is smaller than announced: tunnels that drop large packets.";
    syn_count = leg.socket.syn_count: Kind::Number(1, 127), KERNEL,
        "TCP_SYNCNT: number of SYN retransmissions before connecting fails.",
        "None; connect_timeout ends it too.", "Rarely needed.";
    user_timeout = leg.socket.user_timeout: Kind::Span(MS, HOUR.saturating_mul(24)), KERNEL,
        "TCP_USER_TIMEOUT: unacknowledged data for this long aborts the connection.",
        "If too short, it aborts connections that would survive an outage.",
        "Links with long outages: longer. To free connections to dead hosts: shorter.";
    rto_max = leg.socket.rto_max: Kind::Span(SECOND, Span::from_secs(120)), KERNEL,
        "TCP_RTO_MAX_MS (Linux 6.15 and later): the longest retransmission time-out.",
        "A shorter value sends more during an outage.",
        "Links with outages of a few seconds, so that data flows again soon after.";
    rto_min = leg.socket.rto_min: Kind::Span(Span::from_micros(1), Span::from_millis(200)), KERNEL,
        "TCP_RTO_MIN_US (Linux 6.11 and later): the shortest retransmission time-out.",
        "Below the peer's delayed acknowledgement (40 ms) it retransmits needlessly.",
        "Short legs inside one building.";
    keepalive_idle = leg.socket.keepalive_idle: Kind::Span(SECOND, Span::from_secs(32_767)), KERNEL,
        "TCP_KEEPIDLE: idle time before keep-alive probes. Setting it enables them.",
        "Extra packets, which matter on metered or sleeping links.",
        "Shorter than the connection time-out of a NAT on the path.";
    keepalive_interval = leg.socket.keepalive_interval: Kind::Span(SECOND, Span::from_secs(32_767)), KERNEL,
        "TCP_KEEPINTVL: interval between probes.", "As keepalive_idle.", "As keepalive_idle.";
    keepalive_count = leg.socket.keepalive_count: Kind::Number(1, 127), KERNEL,
        "TCP_KEEPCNT: unanswered probes before the connection is aborted.",
        "As keepalive_idle.", "As keepalive_idle.";
    no_delay = leg.socket.no_delay: Kind::Switch, KERNEL,
        "TCP_NODELAY: small writes are sent at once.",
        "false saves small packets and delays keystrokes.", "Uplinks so thin that every header counts: false.";
    mark = leg.socket.mark: Kind::Number(0, 4_294_967_295), KERNEL,
        "SO_MARK (needs CAP_NET_ADMIN): for `ip rule ... fwmark` and nftables.",
        "None.", "Machines with several uplinks.";
    device = leg.socket.device: Kind::Text("the name of a network device", KERNEL_NAME), KERNEL,
        "SO_BINDTODEVICE: the outgoing device.",
        "When the device is down, so is the leg.", "Machines with several uplinks.";
    source = leg.socket.source: Kind::Address, KERNEL,
        "The local address of outgoing connections.",
        "Connections to the other address family fail.", "Machines with several addresses.";
    fast_open = leg.socket.fast_open: Kind::Switch, KERNEL,
        "TCP Fast Open: data in the SYN, which saves a round trip on every connection after the first.",
        "Some middleboxes drop such SYNs, which costs a retransmission.",
        "Long legs between relays, if their path passes it.";
    mptcp = leg.socket.mptcp: Kind::Switch, KERNEL,
        "Multipath TCP. A host without it gets plain TCP, and the status shows that.",
        "A little CPU; not every option of this table has an effect on each subflow.",
        "Relays with two uplinks each.";
};
