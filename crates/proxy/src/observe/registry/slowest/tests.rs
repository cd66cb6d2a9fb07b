//! The words, on figures of one connection.

use super::*;
use crate::observe::status::FlowStatus;

fn leg(side: &str, tunnel: Option<&str>, unsent: u32) -> LegStatus {
    let text = format!(
        r#"{{"side": "{side}", "profile": "direct", "local": null, "peer": null, "state": "ESTABLISHED",
        "congestion": "bbr", "rtt_us": 1, "rtt_var_us": 1, "min_rtt_us": 1, "retransmits": 0,
        "bytes_retransmitted": 0, "delivery_rate": 1, "pacing_rate": null, "cwnd": 10, "mss": 1448,
        "send_buffer": 1, "receive_buffer": 1, "unsent": {unsent}, "unacked": 0, "options": []}}"#
    );
    let leg: LegStatus = serde_json::from_str(&text).unwrap();
    let waiting = unsent.into();
    let flow = tunnel.map(|_| FlowStatus { answered: true, waiting, ..FlowStatus::default() });
    LegStatus { tunnel: tunnel.map(str::to_owned), flow, ..leg }
}

fn up() -> TunnelStatus {
    TunnelStatus { up: true, ..TunnelStatus::default() }
}

fn through(tunnel: &TunnelStatus) -> Around<'_> {
    Around { tunnel: Some(tunnel), ..Around::default() }
}

fn connection(rates: [u64; 2], legs: [LegStatus; 2]) -> ConnectionStatus {
    ConnectionStatus {
        id: 1,
        protocol: "connect".into(),
        state: "relaying".into(),
        class: "bulk".into(),
        client: ([192, 0, 2, 1], 40_000).into(),
        account: None,
        waits: None,
        destination: None,
        through: Vec::new(),
        age_seconds: 1.0,
        idle_seconds: 0.0,
        requests: 1,
        bytes_up: 0,
        bytes_down: 0,
        bytes_spliced: 0,
        rate_up: rates[0],
        rate_down: rates[1],
        legs: legs.into(),
    }
}

/// The others of `own`'s tunnel, to which each is connected upstream.
fn rivals(own: &ConnectionStatus, others: &[ConnectionStatus]) -> Rivals {
    let others = others.iter().filter(|other| other.id != own.id);
    let shares = others.chain([own]).map(|one| {
        let waits = one.legs[1].unsent > 0;
        let address = one.client.ip().to_string();
        let share = TunnelShare {
            peer: one.legs[1].tunnel.as_deref().unwrap().into(),
            name: one.account.clone().unwrap_or(address),
            sends: one.rate_up > 0 || waits,
            receives: one.rate_down,
        };
        (one.id, share)
    });
    Rivals::of(own.id, &TunnelShares::new(shares))
}

#[test]
fn names_the_leg_for_which_bytes_wait() {
    let far = TunnelStatus { rate: 4_000_000, flows: 12, receives: 10_000_000, ..up() };
    let of = |rates, client, tunnel: Option<&str>, upstream| {
        let legs = [leg("client", None, client), leg("upstream", tunnel, upstream)];
        let around = tunnel.map_or_else(Around::default, |_| through(&far));
        slowest(&connection(rates, legs), &around)
    };
    let path = "the client, or the path between, for which 4 KiB wait: round trip ";
    assert!(of([0, 9], 4096, None, 0).starts_with(path), "{}", of([0, 9], 4096, None, 0));
    assert_eq!(of([0, 9], 0, None, 0), "the destination, or the path between; nothing waits here");
    assert_eq!(of([9, 0], 4096, None, 0), "the client, or the path between; nothing waits here");
    // 4 Mbit/s are 500 kB a second
    assert_eq!(
        of([9, 0], 0, Some("far"), 3 << 20),
        "the tunnel to \"far\", where 12 flows share 4 Mbit/s; 3 MiB of this connection wait for it, at least 6 s"
    );
    let nothing = "nothing: neither end sends, and nothing waits here";
    assert_eq!(of([0, 0], 0, None, 0), nothing);
    assert_eq!(of([0, 0], 0, Some("far"), 0), nothing);
}

/// All is taken into this relay's buffers, so that nothing moves at its doors.
#[test]
fn bytes_that_drain_into_a_tunnel_are_seen() {
    let far = TunnelStatus { rate: 400_000, allotted: 400_000, flows: 1, ..up() };
    let legs = [leg("client", None, 0), leg("upstream", Some("far"), 1 << 20)];
    assert_eq!(
        slowest(&connection([0, 0], legs), &through(&far)),
        "the tunnel to \"far\", where 1 flow sends 400 kbit/s; 1 MiB of this connection wait for it, 20 s at that rate"
    );
    // and beside a trickle in the other direction
    let legs = [leg("client", None, 0), leg("upstream", Some("far"), 1 << 20)];
    let text = slowest(&connection([0, 700], legs), &through(&far));
    assert!(text.contains("1 MiB of this connection wait for it"), "{text}");
}

#[test]
fn tells_a_relay_that_takes_no_more_from_a_slow_tunnel() {
    let ship = TunnelStatus { rate: 20_000_000, allotted: 20_000_000, flows: 2, ..up() };
    let of = |change: fn(&mut FlowStatus)| {
        let mut client = leg("client", Some("ship"), 300_000);
        change(client.flow.as_mut().unwrap());
        slowest(&connection([0, 9], [client, leg("upstream", None, 0)]), &through(&ship))
    };
    let full = of(|flow| flow.full = true);
    let says =
        "the relay \"ship\", which takes no more of this connection: its client there is slow";
    assert!(full.starts_with(says) && full.contains("292 KiB wait here"), "{full}");
    assert!(of(|flow| flow.all_full = true).contains("has no memory for more"));
    let short = of(|flow| flow.short = true);
    assert!(short.ends_with("what waits, half of `[tunnel] memory`"), "{short}");
    assert!(of(|_| ()).starts_with("the tunnel to \"ship\", where 2 flows share 20 Mbit/s;"));
    let gone = TunnelStatus { up: false, ..ship.clone() };
    let legs = [leg("client", Some("ship"), 9), leg("upstream", None, 0)];
    let lost = slowest(&connection([0, 9], legs), &through(&gone));
    assert!(lost.contains("which is lost; 9 B wait"), "{lost}");
}

#[test]
fn tells_a_client_that_reads_slowly_from_its_path() {
    let mut client = leg("client", None, 4096);
    client.window_full = true;
    assert_eq!(
        slowest(&connection([0, 9], [client, leg("upstream", None, 0)]), &Around::default()),
        "the client, which reads slowly: its receive window is full, and 4 KiB wait for it"
    );
}

#[test]
fn tells_a_full_tunnel_from_one_with_room() {
    let agreed = TunnelStatus { receives: 20_000_000, ..up() };
    let one = |id, rate, account: &str| ConnectionStatus {
        id,
        account: Some(account.to_owned()),
        ..connection([0, rate], [leg("client", None, 0), leg("upstream", Some("far"), 0)])
    };
    let comes = |rate, tunnel: &TunnelStatus, others: &[ConnectionStatus]| {
        let own = one(1, rate, "tanaka");
        let around = Around { rivals: rivals(&own, others), ..through(tunnel) };
        slowest(&own, &around)
    };
    let full = comes(18_601_234, &agreed, &[]);
    assert_eq!(full, "the rate agreed with \"far\", 20 Mbit/s: 18.6 Mbit/s of it come");
    let slow = comes(149_960, &agreed, &[]);
    let says = "150 kbit/s of the agreed 20 Mbit/s, no other connection shares it; nothing waits here. Either the destination";
    assert!(slow.contains(says), "{slow}");
    let others = [
        one(1, 9_999_999, "tanaka"),
        one(2, 9_000_000, "sato"),
        one(3, 5_000_000, "sato"),
        one(4, 3_000_000, "suzuki"),
    ];
    assert_eq!(
        comes(1_000_000, &agreed, &others),
        "the rate agreed with \"far\", 20 Mbit/s: 1 Mbit/s of it come; others take 17 Mbit/s of it: \
         sato 14 Mbit/s, suzuki 3 Mbit/s"
    );
    let shared = comes(150_000, &agreed, &others[3..]);
    assert!(shared.contains("; others take 3 Mbit/s of it: suzuki 3 Mbit/s"), "{shared}");
    let fallback = comes(150_000, &TunnelStatus { over_tcp: true, ..agreed }, &[]);
    assert!(fallback.contains("over TCP, which slows down at each loss"), "{fallback}");
}

#[test]
fn others_that_wait_for_the_tunnel_are_named() {
    let far = TunnelStatus { rate: 4_000_000, allotted: 4_000_000, flows: 4, ..up() };
    let one = |id, account: Option<&str>, unsent| ConnectionStatus {
        id,
        account: account.map(str::to_owned),
        ..connection([0, 0], [leg("client", None, 0), leg("upstream", Some("far"), unsent)])
    };
    let own = one(1, Some("tanaka"), 3_800_000);
    let others =
        [one(2, Some("sato"), 9), one(3, Some("sato"), 9), one(4, None, 9), one(5, None, 0)];
    let around = Around { rivals: rivals(&own, &others), ..through(&far) };
    assert_eq!(
        slowest(&own, &around),
        "the tunnel to \"far\", where 4 flows share 4 Mbit/s; 3.6 MiB of this connection wait for it, at least 7 s; \
         3 other connections send, too: sato 2, 192.0.2.1 1"
    );
}

#[test]
fn a_tunnel_that_sends_says_what_the_line_does() {
    let tunnel = TunnelStatus {
        rate: 2_000_000,
        allotted: 20_000_000,
        path_loss: 0.1234,
        flows: 1,
        restrained: Some("reduced to a tenth".into()),
        ..up()
    };
    let legs = [leg("client", Some("ship"), 4096), leg("upstream", None, 0)];
    assert_eq!(
        slowest(&connection([0, 9], legs), &through(&tunnel)),
        "the tunnel to \"ship\", where 1 flow sends 2 Mbit/s of the agreed 20 Mbit/s; the line loses 12.3 %; \
         restrained: reduced to a tenth; 4 KiB of this connection wait for it"
    );
}

#[test]
fn a_name_that_is_looked_up_and_a_destination_that_is_silent_are_told_apart() {
    let legs = || [leg("client", None, 0), leg("upstream", Some("far"), 0)];
    let waits = ConnectionStatus {
        state: "connecting".into(),
        idle_seconds: 7.5,
        ..connection([0, 0], legs())
    };
    let silent = slowest(&waits, &Around::default());
    assert_eq!(silent, "the destination, which has not answered yet, for 7 s");
    let around = Around { lookup: Some(Span::from_millis(3_200)), ..Around::default() };
    assert_eq!(slowest(&waits, &around), "its name: no name server has answered for 3 s");
    let mut legs = legs();
    legs[1].flow = Some(FlowStatus::default());
    let text = slowest(&connection([0, 0], legs), &through(&up()));
    assert!(text.starts_with("the relay \"far\", which has not reached the destination"), "{text}");
}

#[test]
fn limits_and_states_come_first() {
    let legs = || [leg("client", None, 9), leg("upstream", None, 9)];
    let waits = Some("a rate of 1 Mbit/s".to_owned());
    let limited = ConnectionStatus { waits, ..connection([0, 9], legs()) };
    let none = Around::default();
    assert_eq!(slowest(&limited, &none), "its account's limit: a rate of 1 Mbit/s");
    let idle = ConnectionStatus { state: "idle".into(), ..connection([0, 9], legs()) };
    assert_eq!(slowest(&idle, &none), "nothing: it is idle");
    let account = AccountStatus {
        state: "throttle".into(),
        limit_down: Some(400_000),
        rate_down: 396_000,
        ..AccountStatus::default()
    };
    let around = Around { account: Some(&account), ..Around::default() };
    assert_eq!(
        slowest(&connection([0, 9], legs()), &around),
        "its account's limit: 396 kbit/s of 400 kbit/s down are used, to which it is slowed down since its quota is used up"
    );
    assert!(!slowest(&connection([9, 0], legs()), &around).contains("account"));
}
