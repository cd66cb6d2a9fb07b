//! From facts to findings: a pure function.

use super::accounts::accounts;
use super::certificate::certificate;
use super::link::{self, LONG};
use super::paths::paths;
use super::{Finding, Setting, Severity};
use ekiden_linux::bpf::{Control, Missing, Needs};
use ekiden_linux::host::facts::{Facts, Support};
use ekiden_model::units::Bytes;
use ekiden_proxy::observe::status::Status;

/// What a long link wants in flight: 16 MiB holds 200 Mbit/s over 600 ms.
const BUFFER: u64 = 16 << 20;

/// The same as auto-tuning counts it: with the kernel's overhead, for which tcp(7) takes half.
const TUNED: u64 = 2 * BUFFER;

/// Descriptors for ten thousand spliced connections, and some for files and listening sockets.
const DESCRIPTORS: u64 = 65_536;

/// What these facts mean for a relay, and what one that runs here has met; what matters most first.
pub(crate) fn findings(facts: &Facts, running: Option<&Status>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(status) = running {
        accounts(status, &mut found);
        certificate(status, &mut found);
        paths(status, facts, &mut found);
    }
    buffers(facts, &mut found);
    congestion(facts, &mut found);
    pacing(facts, &mut found);
    switches(facts, &mut found);
    capacity(facts, &mut found);
    support(facts, &mut found);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

pub(super) fn finding(
    id: &str,
    severity: Severity,
    what: String,
    why: impl Into<String>,
) -> Finding {
    Finding { id: id.into(), severity, what, why: why.into(), mend: None, settings: Vec::new() }
}

impl Finding {
    /// Mended by writing settings, unless nothing is wrong.
    pub(super) fn set(mut self, settings: &[(&str, String)]) -> Self {
        if self.severity == Severity::Ok {
            return self;
        }
        let words: Vec<_> =
            settings.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        self.mend = Some(format!("sysctl -w {}", words.join(" ")));
        let setting =
            |(name, value): &(&str, String)| Setting { name: (*name).into(), value: value.clone() };
        self.settings = settings.iter().map(setting).collect();
        self
    }

    /// Mended by another command.
    pub(super) fn run(mut self, command: &str) -> Self {
        self.mend = Some(command.into());
        self
    }
}

const fn unless(fine: bool, severity: Severity) -> Severity {
    if fine { Severity::Ok } else { severity }
}

fn quoted(value: &str) -> String {
    if value.contains(char::is_whitespace) { format!("\"{value}\"") } else { value.into() }
}

fn buffers(facts: &Facts, found: &mut Vec<Finding>) {
    for (id, name, auto, direction) in [
        ("send-buffer-limit", "net.core.wmem_max", "net.ipv4.tcp_wmem", "send"),
        ("receive-buffer-limit", "net.core.rmem_max", "net.ipv4.tcp_rmem", "receive"),
    ] {
        let (Some(limit), Some(tuned)) = (facts.number(name), facts.nth(auto, 2)) else { continue };
        let large = limit >= BUFFER && tuned >= TUNED;
        let what = format!(
            "{name} is {}, and {auto} lets auto-tuning go to {}",
            Bytes::new(limit),
            Bytes::new(tuned)
        );
        let why = format!(
            "a connection has at most its buffer in flight: {} permits {} over {LONG}; {} by auto-tuning, half of \
             it overhead, permits {}; a leg's `{direction}_buffer` above {} needs CAP_NET_ADMIN",
            Bytes::new(limit),
            link::permitted(Bytes::new(limit), LONG),
            Bytes::new(tuned),
            link::permitted(Bytes::new(tuned / 2), LONG),
            Bytes::new(limit.saturating_mul(2)),
        );
        let mut settings = Vec::new();
        if limit < BUFFER {
            settings.push((name, BUFFER.to_string()));
        }
        if tuned < TUNED {
            let low = |nth, other| facts.nth(auto, nth).unwrap_or(other);
            let default = if direction == "send" { 16_384 } else { 131_072 };
            settings.push((auto, format!("{} {} {TUNED}", low(0, 4096), low(1, default))));
        }
        found.push(finding(id, unless(large, Severity::Warning), what, why).set(&settings));
    }
}

fn congestion(facts: &Facts, found: &mut Vec<Finding>) {
    let text = |name| facts.sysctl(name).unwrap_or_default();
    let available = text("net.ipv4.tcp_available_congestion_control");
    let allowed = text("net.ipv4.tcp_allowed_congestion_control");
    let default = text("net.ipv4.tcp_congestion_control");
    let missing: Vec<_> = available
        .split_whitespace()
        .filter(|name| !allowed.split_whitespace().any(|other| other == *name))
        .collect();
    let what = format!(
        "congestion controls allowed to everybody: \"{allowed}\"; available: \"{available}\"; default: {default}"
    );
    if missing.is_empty() {
        let why = "a leg's profile may ask for any of them";
        found.push(finding("congestion-control-allowed", Severity::Ok, what, why));
    } else {
        let (severity, now) = if facts.capabilities.net_admin {
            (Severity::Note, "this process has it, a service's own user does not")
        } else {
            (Severity::Warning, "this process does not have it")
        };
        let why =
            format!("a leg that asks for {} needs CAP_NET_ADMIN: {now}", missing.join(" or "));
        found.push(
            finding("congestion-control-allowed", severity, what, why)
                .set(&[("net.ipv4.tcp_allowed_congestion_control", available.into())]),
        );
    }
    for (name, module) in [("bbr", "tcp_bbr"), ("cubic", "tcp_cubic")] {
        if !available.split_whitespace().any(|other| other == name) {
            let what = format!("no congestion control {name} is loaded");
            let why = "a leg that names it uses the next of its list";
            found.push(
                finding(&format!("no-{name}"), Severity::Note, what, why)
                    .run(&format!("modprobe {module}")),
            );
        }
    }
}

fn pacing(facts: &Facts, found: &mut Vec<Finding>) {
    match facts.qdiscs.get("fq") {
        Some(Support::Yes) => {
            let default = facts.sysctl("net.core.default_qdisc").unwrap_or("unknown");
            let what = format!("the kernel has the fq qdisc (default qdisc: {default})");
            let why = "fq paces a leg where the device uses it; elsewhere TCP paces by itself";
            found.push(finding("fq", Severity::Ok, what, why));
        }
        Some(Support::No { .. }) => {
            let what = "no fq qdisc in this kernel".into();
            let why = "TCP paces each connection by a timer instead, at slightly more processor time; a kernel \
                       with CONFIG_NET_SCH_FQ (module sch_fq) has fq";
            let mend = "modprobe sch_fq && sysctl -w net.core.default_qdisc=fq";
            found.push(finding("fq", Severity::Note, what, why).run(mend));
        }
        Some(Support::Unknown { because }) => {
            let what = format!("whether the kernel has the fq qdisc is unknown: {because}");
            let why = "without fq, TCP paces each connection by a timer";
            found.push(
                finding("fq", Severity::Note, what, why).run("sudo ekiden doctor # to find out"),
            );
        }
        None => {}
    }
    let list = |wanted: fn(&Support) -> bool| {
        let names: Vec<_> = ["fq_codel", "cake", "netem", "htb", "tbf"]
            .into_iter()
            .filter(|name| facts.qdiscs.get(*name).is_some_and(wanted))
            .collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    };
    let what = format!(
        "other qdiscs: {}; not in this kernel: {}",
        list(Support::is_yes),
        list(|support| matches!(support, Support::No { .. }))
    );
    let why = "not needed: Ekiden emulates links and queues itself";
    found.push(finding("qdiscs", Severity::Ok, what, why));
}

fn switches(facts: &Facts, found: &mut Vec<Finding>) {
    // name, wanted, severity when it is not, what it means
    let wanted = [
        (
            "net.ipv4.tcp_slow_start_after_idle",
            "slow-start-after-idle",
            "0",
            Severity::Warning,
            "after an idle time of one RTO a connection restarts at ten segments; on a long link that costs a \
             kept-alive connection several round trips each time",
        ),
        (
            "net.ipv4.tcp_mtu_probing",
            "mtu-probing",
            "1",
            Severity::Note,
            "where a router drops large packets silently, a connection hangs unless TCP probes for a size \
             that passes (1: only after a suspicion)",
        ),
        (
            "net.ipv4.tcp_window_scaling",
            "window-scaling",
            "1",
            Severity::Problem,
            "without it no connection has more than 64 KiB in flight",
        ),
        (
            "net.ipv4.tcp_sack",
            "selective-acknowledgement",
            "1",
            Severity::Warning,
            "without it each loss in a window costs a round trip",
        ),
        (
            "net.ipv4.tcp_timestamps",
            "time-stamps",
            "1",
            Severity::Warning,
            "without it round-trip times are sampled less and sequence numbers may wrap on fast links",
        ),
        (
            "net.ipv4.tcp_syncookies",
            "syn-cookies",
            "1",
            Severity::Warning,
            "without it a flood of SYNs fills the queue of half-open connections, and clients' SYNs are dropped",
        ),
    ];
    for (name, id, value, severity, why) in wanted {
        let Some(now) = facts.sysctl(name) else { continue };
        let what = format!("{name} is {now}");
        // 2 is as good: probing always, time stamps without random offsets, cookies always
        let good = now == value || (value == "1" && now == "2");
        let why = if good { format!("wanted: {why}") } else { why.to_owned() };
        let found_here = finding(id, unless(good, severity), what, why);
        found.push(found_here.set(&[(name, value.into())]));
    }
    if let Some(now) = facts.number("net.ipv4.tcp_fastopen") {
        let what = format!("net.ipv4.tcp_fastopen is {now} (1: connecting, 2: listening, 3: both)");
        let why = "`fast_open` on a leg saves a round trip when connecting, where networks pass it";
        let both = ("net.ipv4.tcp_fastopen", (now | 3).to_string());
        let severity = unless(now & 3 == 3, Severity::Note);
        found.push(finding("fast-open", severity, what, why).set(&[both]));
    }
}

fn capacity(facts: &Facts, found: &mut Vec<Finding>) {
    let limit = facts.descriptors;
    let what = format!("descriptors: {} now, {} at most (RLIMIT_NOFILE)", limit.soft, limit.hard);
    let why = format!(
        "a relayed connection takes 2, and 4 more while spliced both ways: {} to {} connections; \
         Ekiden raises the first limit to the second by itself",
        limit.hard.saturating_sub(64) / 6,
        limit.hard.saturating_sub(64) / 2
    );
    found.push(if limit.hard >= DESCRIPTORS {
        finding("descriptors", Severity::Ok, what, why)
    } else {
        finding("descriptors", Severity::Warning, what, why).run(&format!(
            "prlimit --pid $$ --nofile={DESCRIPTORS}:{DESCRIPTORS} # this shell; a service: LimitNOFILE={DESCRIPTORS}"
        ))
    });
    let name = "net.ipv4.ip_local_port_range";
    if let (Some(low), Some(high)) = (facts.nth(name, 0), facts.nth(name, 1)) {
        let ports = (high + 1).saturating_sub(low);
        let what = format!("{name} is {low} to {high}: {ports} ports");
        let why =
            "the most connections from one address to one destination, such as an upstream proxy";
        let severity = unless(ports >= 28_000 * 2, Severity::Note);
        found.push(finding("port-range", severity, what, why).set(&[(name, "4096 65535".into())]));
    }
    let name = "net.core.somaxconn";
    if let Some(queue) = facts.number(name) {
        let what = format!("{name} is {queue}");
        let why =
            "the most connections waiting to be accepted; further clients retry after a second";
        let severity = unless(queue >= 4096, Severity::Warning);
        found.push(finding("accept-queue", severity, what, why).set(&[(name, "4096".into())]));
    }
    if let (Some(max), Some(count)) = (
        facts.number("net.netfilter.nf_conntrack_max"),
        facts.number("net.netfilter.nf_conntrack_count"),
    ) {
        let what = format!("connection tracking holds {count} of at most {max}");
        let why = "a relayed connection takes two entries where the firewall tracks; a full table drops SYNs";
        let double = ("net.netfilter.nf_conntrack_max", (max * 2).to_string());
        let severity = unless(count < max / 2, Severity::Warning);
        found.push(finding("connection-tracking", severity, what, why).set(&[double]));
    }
    if let (Some(size), Some(pages)) =
        (facts.number("fs.pipe-max-size"), facts.number("fs.pipe-user-pages-soft"))
    {
        let what = format!(
            "pipes: up to {} each; an ordinary user's {} together",
            Bytes::new(size),
            Bytes::new(pages * 4096)
        );
        let why = "splicing moves bytes through pipes; beyond the sum new ones hold two pages and \
                   splicing slows down";
        found.push(finding("pipes", Severity::Ok, what, why));
    }
    let machine = &facts.machine;
    let memory = machine.memory_limit.into_iter().chain(machine.memory).min();
    let what = format!(
        "{} of memory{}, {} processors",
        memory.map_or_else(|| "unknown".into(), |n| Bytes::mib(n >> 20).to_string()),
        if machine.memory_limit.is_some() { " (limited by a control group)" } else { "" },
        machine.cpus
    );
    found.push(finding("machine", Severity::Ok, what, "budgets are set against it"));
}

fn support(facts: &Facts, found: &mut Vec<Finding>) {
    let options = &facts.sockets.options;
    let has = |name: &str| options.get(name).is_some_and(Support::is_yes);
    for (name, id, since, lost) in [
        ("TCP_RTO_MAX_MS", "rto-max", "6.15", "a leg's `rto_max` is refused"),
        ("SO_BUF_LOCK", "buffer-lock", "5.14", "a leg's `lock_buffers` is refused"),
        ("SO_MAX_PACING_RATE", "pace", "3.13", "a leg's `pace` is refused"),
        ("TCP_NOTSENT_LOWAT", "unsent-low-water", "3.12", "a leg's `notsent_lowat` is refused"),
    ] {
        found.push(if has(name) {
            finding(id, Severity::Ok, format!("{name} is granted"), "legs may use it")
        } else {
            let what = format!("no {name} in this kernel (Linux {since})");
            finding(id, Severity::Note, what, lost)
        });
    }
    let rto_min = match facts.sockets.rto_min_largest_us {
        Some(us) => finding(
            "rto-min",
            if us < 1_000_000 { Severity::Note } else { Severity::Ok },
            format!("TCP_RTO_MIN_US is granted up to {} ms", us / 1000),
            "a leg's `rto_min` can be shorter than the kernel's 200 ms, but not longer; a route's can be longer",
        )
        .run("ip route change default via GATEWAY dev DEVICE rto_min 500ms # your own gateway and device"),
        None => finding(
            "rto-min",
            Severity::Note,
            "no TCP_RTO_MIN_US in this kernel (Linux 6.11)".into(),
            "a leg's `rto_min` is refused; a route's can be set",
        )
        .run("ip route change default via GATEWAY dev DEVICE rto_min 50ms # your own gateway and device"),
    };
    found.push(rto_min);
    found.push(if has("kTLS") {
        finding(
            "ktls",
            Severity::Ok,
            "the kernel encrypts TLS (kTLS)".into(),
            "Ekiden does not use it",
        )
    } else {
        let why = "Ekiden does not use it; a kernel with CONFIG_TLS has it";
        finding("ktls", Severity::Note, "no kTLS".into(), why).run("modprobe tls")
    });
    let enabled = facts.sysctl("net.mptcp.enabled");
    found.push(match (has("MPTCP"), enabled) {
        (true, _) => {
            let why = "a leg's `mptcp` works where both ends have it";
            finding("mptcp", Severity::Ok, "Multipath TCP is available".into(), why)
        }
        (false, Some("0")) => {
            let why = "a leg's `mptcp` falls back to TCP";
            finding("mptcp", Severity::Note, "Multipath TCP is switched off".into(), why)
                .set(&[("net.mptcp.enabled", "1".into())])
        }
        (false, _) => {
            let why = "a leg's `mptcp` falls back to TCP; a kernel with CONFIG_MPTCP has it";
            finding("mptcp", Severity::Note, "no Multipath TCP".into(), why)
        }
    });
    found.push(programs(facts));
    let length = facts.sockets.tcp_info_length;
    let (major, minor) = facts.kernel_version();
    let what = format!("Linux {major}.{minor}, whose TCP_INFO has {length} bytes");
    let why = "`status` shows every figure of a leg from 216 bytes on (Linux 4.19)";
    let severity = if length >= 216 { Severity::Ok } else { Severity::Note };
    found.push(finding("kernel", severity, what, why));
}

/// Whether Ekiden's own congestion controls can be loaded.
fn programs(facts: &Facts) -> Finding {
    let bpf = &facts.bpf;
    let why = "a leg's `congestion` may name \"hold\" and \"westwood\", which Ekiden loads as BPF programs; without \
               them it uses the next of its list";
    let is_pinned =
        |control: &Control| bpf.pinned.iter().any(|name| Control::called(name) == Some(*control));
    let others: Vec<_> = Control::ALL.into_iter().filter(|control| !is_pinned(control)).collect();
    let pinned = format!("pinned by `ekiden bpf load`: {}", bpf.pinned.join(", "));
    if others.is_empty() {
        return finding("bpf", Severity::Ok, pinned, why);
    }
    let needs = Needs {
        types: bpf.types && bpf.congestion_controls,
        kernel: facts.kernel_version(),
        permitted: bpf.permitted,
        compiled: bpf.compiled,
    };
    let Err(missing) = needs.met() else {
        return finding(
            "bpf",
            Severity::Ok,
            "Ekiden's congestion controls can be loaded".into(),
            why,
        );
    };
    let load = "sudo ekiden bpf load --user \"$(id -un)\"";
    if !bpf.closed.is_empty() {
        return finding("bpf", Severity::Note, bpf.closed.join("; "), why).run(load);
    }
    let what = match bpf.pinned.is_empty() {
        true => format!("Ekiden's congestion controls cannot be loaded: {missing}"),
        false => {
            let words: Vec<_> = others.iter().map(|control| control.word()).collect();
            format!("{pinned}; {} cannot be loaded: {missing}", words.join(", "))
        }
    };
    let found = finding("bpf", Severity::Note, what, why);
    match missing {
        Missing::Compiler => found.set(&[("net.core.bpf_jit_enable", "1".into())]),
        Missing::Privilege => found.run(load),
        _ => found,
    }
}
