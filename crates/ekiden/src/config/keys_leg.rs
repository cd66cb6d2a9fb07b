//! The keys of `[leg.NAME]`.

use super::draft::LegDraft;
use super::key::{Key, keys};
use super::keys::{HOUR, MS, SECOND, some_name};
use super::kind::{Check, Kind};
use super::value::INITIAL_RTOS;
use ekiden_model::units::{Bytes, Rate, Span};

const KERNEL: Option<&str> = Some("kernel");
const BUFFER: Kind = Kind::Size(Bytes::kib(4), Bytes::mib(1024));

/// A word the kernel will be given as a name: printable, short.
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

/// The keys of `[leg.NAME]`.
pub(super) static LEG: &[Key<LegDraft>] = keys! { LegDraft;
    inherit = inherit: Kind::Text("the name of a leg", some_name), Some(""),
        "Another leg whose keys hold here too, unless set here.",
        "None.", "Whoever has several legs that differ in little.";
    connect_timeout = leg.connect_timeout: Kind::Span(MS, Span::from_secs(600)), None,
        "How long connecting may take, all addresses of the name together.",
        "Too short, and a distant or lossy peer is never reached; too long, and fail-over waits.",
        "Longer where SYNs are lost often; shorter where another upstream stands ready.";
    establish_timeout = leg.establish_timeout: Kind::Span(Span::from_millis(100), Span::from_secs(600)), Some("connect_timeout"),
        "How long one address may take to answer, apart from the time-outs of data: user_timeout does not cut it.",
        "Too short, and a lossy path is given up that the next SYN would have opened; connect_timeout ends it too.",
        "Where another address or upstream stands ready to be tried: \"5 s\".";
    initial_rto = leg.initial_rto: Kind::Choice(INITIAL_RTOS), None,
        "How long a SYN is waited for before another is sent: \"cached\", 200 ms to 1 s by earlier handshakes with the destination (its /24 or /48); \"kernel\", always 1 s.",
        "A second socket while the first waits; where the round trip suddenly doubles, a SYN in vain, one a second to a destination while less than 1 % of handshakes is held to be lost.",
        "\"kernel\" where every SYN counts, as behind a firewall that limits them.";
    second_syn = leg.second_syn: Kind::Switch, None,
        "Sends a second SYN max(20 ms, RTO/8) after the first unless that is answered: at most one a second to a destination, none where less than 1 % of recent handshakes is held to be lost, by the destination's own and its leg's.",
        "Up to twice the SYNs; where it loses the race, the peer's answer to it is reset.",
        "Legs that lose several per cent and open few connections to each destination.";
    spread = leg.spread: Kind::Switch, None,
        "On paths of 128 ms and more, has the kernel spread what a socket sends over the round trip. In bursts, CUBIC leaves its slow start early there: one stream over 200 Mbit/s and 600 ms had 116 Mbit/s, and 191 spread.",
        "A timer of the kernel's each millisecond for each busy socket.",
        "Rarely anybody; bbr does it by itself, and `pace` has it done on any path.";
    idle_timeout = leg.idle_timeout: Kind::Span(SECOND, HOUR.saturating_mul(24 * 30)), None,
        "A connection on which nothing moved for so long is closed. The shorter of its two legs counts.",
        "Longer holds a descriptor and its kernel memory for peers that are gone.",
        "Longer for ssh sessions left open; shorter on a busy proxy short of descriptors.";
    half_closed_timeout = leg.half_closed_timeout: Kind::Span(SECOND, HOUR.saturating_mul(24)), None,
        "One direction has ended and nothing moved in the other for so long: closed.",
        "Too short cuts a slow answer to a finished request.",
        "Rarely anybody.";
    congestion = leg.socket.congestion: Kind::Words("a congestion control such as \"bbr\"", KERNEL_NAME), KERNEL,
        "TCP_CONGESTION for what this machine sends on the leg: the first of the list that the kernel grants.",
        "bbr wants pacing (fq or the kernel's own timers) and can be unfair to loss-based neighbours.",
        "Lossy or long legs: \"bbr\". `ekiden doctor` names those this kernel allows; \"hold\" (a rate of your own, see `rate`) and \"westwood\" are brought along.";
    rate = leg.rate: Kind::Rate(Rate::from_bits_per_second(64_000)), Some("none"),
        "What all connections of the leg together send while \"hold\" is their congestion control: bits a second of IP packets, retransmissions among them, divided at each acknowledgement among those that have something to send.",
        "Losses by chance cost nothing; a queue that grows, or much more lost than the path loses by itself, makes it less for some round trips. Other traffic on the line is hardly given way to.",
        "Where a line, or a part of one, is yours: `congestion = [\"hold\", \"bbr\"]`, `rate = \"4 Mbit/s\"`. A leg that inherits it holds a rate of its own.";
    line = leg.line: Kind::Rate(Rate::from_bits_per_second(64_000)), Some("shared"),
        "The rate of the line that carries `rate`, where all of it is your own: then what losses take is sent in addition, up to this and a quarter more than `rate`, and the least that is kept is 64 kbit/s instead of a tenth.",
        "Said of a line that others use, they are pushed aside.",
        "Lines with an allotment below what they can carry.";
    pace = leg.socket.pace: Kind::Rate(Rate::from_bits_per_second(8_000)), KERNEL,
        "SO_MAX_PACING_RATE: the most each socket sends, in payload bits per second.",
        "Set too low it is simply slower.",
        "Where the link's rate is known and its buffer is short or far too long.";
    unsent_low_water = leg.socket.unsent_low_water: Kind::Size(Bytes::kib(1), Bytes::mib(1024)), KERNEL,
        "TCP_NOTSENT_LOWAT: bytes written and not yet sent beyond which the socket is not writable.",
        "Less waits in the kernel, more wake-ups; far too little loses throughput.",
        "128 KiB is a good try where interactive and bulk data share a connection.";
    send_buffer = leg.socket.send_buffer: BUFFER, KERNEL,
        "SO_SNDBUF (FORCE where privileged) as wanted; the kernel doubles what it is passed, so half is.",
        "Switches send auto-tuning off; below rate x RTT the leg is slower.",
        "Long legs on machines whose net.ipv4.tcp_wmem cannot be raised.";
    dscp = leg.socket.dscp: Kind::Number(0, 63), KERNEL,
        "DSCP of packets sent on the leg: 46 is EF, 10 AF11, 8 CS1; the ECN bits are left alone.",
        "Networks may ignore it or police what they did not sell.",
        "Where the network has classes to choose from.";
    receive_buffer = leg.socket.receive_buffer: BUFFER, KERNEL,
        "SO_RCVBUF (FORCE where privileged), set before connecting or listening.",
        "Switches receive auto-tuning off; below rate x RTT the leg is slower.",
        "Long legs on machines whose net.ipv4.tcp_rmem cannot be raised.";
    window_clamp = leg.socket.window_clamp: Kind::Size(Bytes::kib(2), Bytes::mib(1024)), KERNEL,
        "TCP_WINDOW_CLAMP: the largest window advertised, so the most that is under way towards here.",
        "Below rate x RTT the leg is slower.",
        "To keep somebody else's bottleneck queue short from the receiving side.";
    lock_buffers = leg.socket.lock_buffers: Kind::Switch, KERNEL,
        "SO_BUF_LOCK: whether auto-tuning is kept off buffers set here; false gives them back to it.",
        "None.", "With send_buffer or receive_buffer as a starting size: false.";
    mss = leg.socket.mss: Kind::Number(88, 32_767), KERNEL,
        "TCP_MAXSEG in bytes: the largest segment, announced in the SYN.",
        "Smaller segments, more packets and acknowledgements.",
        "Where a path's MTU is smaller than it says: tunnels that drop large packets.";
    syn_count = leg.socket.syn_count: Kind::Number(1, 127), KERNEL,
        "TCP_SYNCNT: how often a SYN is sent again before connecting fails.",
        "None; connect_timeout ends it too.", "Rarely anybody.";
    user_timeout = leg.socket.user_timeout: Kind::Span(MS, HOUR.saturating_mul(24)), KERNEL,
        "TCP_USER_TIMEOUT: data unacknowledged for so long aborts the connection.",
        "Too short cuts connections through an outage they would have survived.",
        "Longer on links with long outages; shorter to free what dead peers hold.";
    rto_max = leg.socket.rto_max: Kind::Span(SECOND, Span::from_secs(120)), KERNEL,
        "TCP_RTO_MAX_MS (Linux 6.15 and later): the longest retransmission time-out.",
        "Shorter sends more into an outage.",
        "Links with outages of some seconds, so that data moves again soon after.";
    rto_min = leg.socket.rto_min: Kind::Span(Span::from_micros(1), Span::from_millis(200)), KERNEL,
        "TCP_RTO_MIN_US (Linux 6.11 and later): the shortest retransmission time-out.",
        "Below the peer's delayed acknowledgement (40 ms) it retransmits needlessly.",
        "Short legs inside one building.";
    keepalive_idle = leg.socket.keepalive_idle: Kind::Span(SECOND, Span::from_secs(32_767)), KERNEL,
        "TCP_KEEPIDLE: idle for so long, and keep-alive probes begin; setting it switches them on.",
        "A packet now and then; on metered or sleeping links that counts.",
        "Below the time after which a NAT on the way forgets connections.";
    keepalive_interval = leg.socket.keepalive_interval: Kind::Span(SECOND, Span::from_secs(32_767)), KERNEL,
        "TCP_KEEPINTVL: between two probes.", "As keepalive_idle.", "As keepalive_idle.";
    keepalive_count = leg.socket.keepalive_count: Kind::Number(1, 127), KERNEL,
        "TCP_KEEPCNT: unanswered probes before the connection is given up.",
        "As keepalive_idle.", "As keepalive_idle.";
    no_delay = leg.socket.no_delay: Kind::Switch, KERNEL,
        "TCP_NODELAY: small writes are sent at once. A relay must not hold back what it did not write.",
        "Off saves small packets and delays keystrokes.", "Off on uplinks so thin that every header counts.";
    mark = leg.socket.mark: Kind::Number(0, 4_294_967_295), KERNEL,
        "SO_MARK (needs CAP_NET_ADMIN): for `ip rule ... fwmark` and nftables.",
        "None.", "Machines with several uplinks.";
    device = leg.socket.device: Kind::Text("the name of a network device", KERNEL_NAME), KERNEL,
        "SO_BINDTODEVICE: the device connections leave by.",
        "When the device is down, so is the leg.", "Machines with several uplinks.";
    source = leg.socket.source: Kind::Address, KERNEL,
        "The local address connections are made from.",
        "Connections to the other address family fail.", "Machines with several addresses.";
    fast_open = leg.socket.fast_open: Kind::Switch, KERNEL,
        "TCP Fast Open: data in the SYN, a round trip saved on every connection after the first.",
        "Some middle boxes drop such SYNs: a retransmission is lost then.",
        "Long legs between relays whose path is known to pass it.";
    mptcp = leg.socket.mptcp: Kind::Switch, KERNEL,
        "Multipath TCP; a peer without it gets plain TCP, and status says so.",
        "A little CPU; not every option of this table has an effect on each subflow.",
        "Relays with two uplinks each.";
};
