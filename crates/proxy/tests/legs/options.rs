//! Every option of a leg, read back from the socket it belongs to, and not found on the other.

use crate::harness::*;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::read_back::read_back;
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::observe::status::LegStatus;
use ekiden_proxy::settings::{Pattern, Settings};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

/// A value for every option, each number distinct for each `n`; switches alternate.
fn every(n: u8) -> SocketOptions {
    let k = u64::from(n);
    SocketOptions {
        congestion: vec![if n.is_multiple_of(2) { "reno" } else { "cubic" }.into()],
        pace: Some(format!("{} Mbit/s", 40 + 8 * k).parse().unwrap()),
        // takes a program in the kernel: `linux/tests/programs.rs`
        rate: None,
        notsent_lowat: Some(Bytes::kib(16 + k)),
        send_buffer: Some(Bytes::kib(128 + 2 * k)),
        dscp: Some(10 + n),
        receive_buffer: Some(Bytes::kib(256 + 2 * k)),
        window_clamp: Some(Bytes::kib(64 + k)),
        lock_buffers: Some(n.is_multiple_of(2)),
        mss: Some(1200 + 10 * u16::from(n)),
        syn_count: Some(3 + n),
        user_timeout: Some(Span::from_secs(20 + k)),
        rto_max: Some(Span::from_secs(5 + k)),
        rto_min: Some(Span::from_millis(100 + 20 * k)),
        keepalive_idle: Some(Span::from_secs(60 + k)),
        keepalive_interval: Some(Span::from_secs(7 + k)),
        keepalive_count: Some(4 + n),
        no_delay: Some(n.is_multiple_of(2)),
        mark: is_root().then_some(100 + u32::from(n)),
        device: Some("lo".into()),
        source: Some(format!("127.0.0.{}", 1 + n).parse().unwrap()),
        fast_open: Some(!n.is_multiple_of(2)),
        mptcp: Some(false),
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("SO_MARK needs CAP_NET_ADMIN");
    }
    root
}

/// What is to be read back. A new field of the options does not build until it is told here.
fn expected(options: &SocketOptions) -> BTreeMap<&'static str, String> {
    let SocketOptions {
        congestion,
        pace,
        // kept by the program, and not read back from a socket
        rate: _,
        notsent_lowat,
        send_buffer,
        dscp,
        receive_buffer,
        window_clamp,
        lock_buffers,
        mss,
        syn_count,
        user_timeout,
        rto_max,
        rto_min,
        keepalive_idle,
        keepalive_interval,
        keepalive_count,
        no_delay,
        mark,
        device,
        source,
        fast_open,
        mptcp,
    } = options;
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(ToString::to_string)
    }
    let all = [
        ("congestion", congestion.first().cloned()),
        ("pace", text(pace)),
        ("notsent_lowat", text(notsent_lowat)),
        ("send_buffer", text(send_buffer)),
        ("dscp", text(dscp)),
        ("receive_buffer", text(receive_buffer)),
        ("window_clamp", text(window_clamp)),
        ("lock_buffers", text(lock_buffers)),
        // the segment in use: 12 bytes of each carry the time stamps
        ("mss", mss.map(|mss| (mss - 12).to_string())),
        ("syn_count", text(syn_count)),
        ("user_timeout", text(user_timeout)),
        ("rto_max", text(rto_max)),
        ("rto_min", text(rto_min)),
        ("keepalive_idle", text(keepalive_idle)),
        ("keepalive_interval", text(keepalive_interval)),
        ("keepalive_count", text(keepalive_count)),
        ("no_delay", text(no_delay)),
        ("mark", text(mark)),
        ("device", text(device)),
        ("source", text(source)),
        ("fast_open", text(fast_open)),
        ("mptcp", text(mptcp)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn has(local: SocketAddr, peer: Option<SocketAddr>) -> BTreeMap<&'static str, String> {
    let socket = own_socket(local, peer).expect("the relay's own socket");
    read_back(socket.as_fd()).into_iter().collect()
}

/// What the sockets of a connection's two legs have.
fn both(legs: &[LegStatus]) -> [BTreeMap<&'static str, String>; 2] {
    assert_eq!(
        legs.iter().map(|leg| leg.side.as_str()).collect::<Vec<_>>(),
        ["client", "upstream"]
    );
    [0, 1].map(|i| has(legs[i].local.unwrap(), legs[i].peer))
}

/// Each option stands as asked, but for those that `not_here` names.
fn stands(side: &str, asked: &SocketOptions, has: &BTreeMap<&str, String>, not_here: &[&str]) {
    for (name, value) in expected(asked) {
        let same = has.get(name) == Some(&value);
        assert_eq!(same, !not_here.contains(&name), "{side}: {name} {value}: {:?}", has.get(name));
    }
}

/// The status tells of every option asked; of those refused it says why.
fn told(leg: &LegStatus, asked: &SocketOptions, refused: &[&str]) {
    let told: Vec<_> = leg.options.iter().map(|option| option.option.as_str()).collect();
    let mut asked: Vec<_> = expected(asked).into_keys().collect();
    asked.sort_by_key(|name| told.iter().position(|other| other == name));
    assert_eq!(told, asked, "{}", leg.side);
    for option in &leg.options {
        let why = option.refused.as_deref();
        let name = option.option.as_str();
        assert_eq!(why.is_some(), refused.contains(&name), "{} {option:?}", leg.side);
        assert!(why.is_some() || option.granted.is_some(), "{option:?}");
    }
}

/// Each listening protocol opens a connection to an echoing server.
fn open(relay: SocketAddr, to: SocketAddr, protocol: &str) -> TcpStream {
    let host = to.ip().to_string();
    let mut stream = match protocol {
        "connect" => connect(relay, to).1,
        "socks5" => socks5(relay, &host, to.port()).1,
        "socks4a" => socks4a(relay, &host, to.port()).1,
        _ => unreachable!("{protocol}"),
    };
    assert!(echoes(&mut stream), "{protocol}");
    stream
}

/// On an accepted socket these are what the handshake made of the listening socket's.
const NOT_ON_ACCEPTED: [&str; 2] = ["syn_count", "fast_open"];

#[test]
fn each_leg_has_its_own_options() {
    for (client, upstream) in [(every(0), every(1)), (every(3), every(2))] {
        let mut settings = settings();
        // the address the client's leg is to have is where the client connects to
        settings.listen = vec![SocketAddr::new(client.source.unwrap(), 0)];
        settings.legs.insert("client".into(), leg(client.clone()));
        settings.legs.insert("direct".into(), leg(upstream.clone()));
        let relay = Relay::start(settings);
        let listening = has(relay.address, None);
        for name in ["fast_open", "syn_count", "receive_buffer", "window_clamp", "device", "mark"] {
            assert_eq!(listening.get(name), expected(&client).get(name), "listening: {name}");
        }
        assert_eq!(listening.get("mss"), client.mss.map(|mss| mss.to_string()).as_ref());
        let server = echo();
        for protocol in ["connect", "socks5", "socks4a"] {
            let stream = open(relay.address, server, protocol);
            let legs = relay.relayed().legs;
            let [near, far] = both(&legs);
            // Fast Open is the listening socket's; an accepted one has no queue
            let on = client.fast_open == Some(true);
            stands("client", &client, &near, if on { &["fast_open"] } else { &[] });
            stands("upstream", &upstream, &far, &[]);
            told(&legs[0], &client, &NOT_ON_ACCEPTED);
            told(&legs[1], &upstream, &[]);
            // nothing of the one on the other, but where both asked for the same
            let (near_asked, far_asked) = (expected(&client), expected(&upstream));
            for (name, value) in &near_asked {
                if far_asked.get(name) != Some(value) {
                    assert_ne!(far.get(name), Some(value), "{name}");
                }
            }
            drop(stream);
            wait_for("relay.status().connections.is_empty()", || {
                relay.status().connections.is_empty()
            });
        }
    }
}

#[test]
fn an_http_request_runs_over_the_same_legs() {
    let (client, upstream) = (every(0), every(1));
    let mut settings = settings();
    settings.listen = vec![SocketAddr::new(client.source.unwrap(), 0)];
    settings.legs.insert("client".into(), leg(client.clone()));
    settings.legs.insert("direct".into(), leg(upstream.clone()));
    let relay = Relay::start(settings);
    let server = std::net::TcpListener::bind(loopback(0)).unwrap();
    let to = server.local_addr().unwrap();
    let mut stream = TcpStream::connect(relay.address).unwrap();
    write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    assert!(read_head(&mut accepted).starts_with("GET / "));
    // the answer is still to come: both legs live
    let connection = relay.relayed();
    assert_eq!(connection.protocol, "http");
    let [near, far] = both(&connection.legs);
    stands("client", &client, &near, &[]);
    stands("upstream", &upstream, &far, &[]);
}

/// Three sets: the listening socket's, laid over it the route's, and the upstream proxy's.
#[test]
fn routes_set_the_client_leg_profile_and_upstreams_their_own() {
    let (client, over, far_leg) = (every(0), every(1), every(2));
    let hop = Relay::start(settings());
    let server = echo();
    let mut settings = settings();
    settings.legs.insert("client".into(), leg(client));
    settings.legs.insert("over".into(), leg(over.clone()));
    settings.legs.insert("far".into(), leg(far_leg.clone()));
    crate::upstream::add(&mut settings, "hop", "http", hop.address, None);
    settings.upstreams.get_mut("hop").unwrap().leg = "far".into();
    let to = Pattern {
        host: ekiden_proxy::settings::HostPattern::Any,
        ports: Some((server.port(), server.port())),
    };
    let mut way = route(vec![to], &[&["hop"]]);
    way.client_leg = "over".into();
    settings.routes.push(way);
    let relay = Relay::start(settings);
    let _stream = open(relay.address, server, "connect");
    let connection = relay.relayed();
    assert_eq!(connection.through, ["hop"]);
    let legs = connection.legs;
    assert_eq!((legs[0].profile.as_str(), legs[1].profile.as_str()), ("over", "far"));
    let [near, far] = both(&legs);
    // settled when the client connected, before the route was known
    let settled = ["mss", "syn_count", "source", "fast_open"];
    for (name, value) in expected(&over) {
        if !settled.contains(&name) {
            assert_eq!(near.get(name), Some(&value), "{name}");
        }
    }
    told_at_least(&legs[0], &over, &settled);
    stands("upstream", &far_leg, &far, &[]);
    told(&legs[1], &far_leg, &[]);
}

/// What could not be laid over is told, too.
fn told_at_least(leg: &LegStatus, asked: &SocketOptions, refused: &[&str]) {
    let told: BTreeMap<_, _> =
        leg.options.iter().map(|option| (option.option.as_str(), option)).collect();
    assert_eq!(told.len(), expected(asked).len());
    for name in refused {
        let option = told[name];
        // a segment that is smaller anyway is as good as granted
        let smaller = *name == "mss" && option.granted.is_some();
        assert!(option.refused.is_some() || smaller, "{option:?}");
    }
}

#[test]
fn requests_multipath_on_the_configured_leg() {
    let mut settings: Settings = settings();
    let asked = SocketOptions { mptcp: Some(true), ..SocketOptions::default() };
    settings.legs.insert("direct".into(), leg(asked));
    let relay = Relay::start(settings);
    let _stream = open(relay.address, echo(), "connect");
    let legs = relay.relayed().legs;
    let [near, far] = both(&legs);
    assert_eq!(near["mptcp"], "false");
    let told = &legs[1].options[0];
    if told.refused.is_some() {
        return skip(&format!("{told:?}"));
    }
    assert_eq!((far["mptcp"].as_str(), told.granted.as_deref()), ("true", Some("true")));
}
