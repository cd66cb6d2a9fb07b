#![allow(clippy::unwrap_used)]

use super::*;
use crate::sockets::outcome::OptionOutcome;
use crate::sockets::read_back::read_back;
use crate::sockets::tcp_info::TcpInfo;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

fn get(fd: BorrowedFd<'_>, name: &str) -> String {
    let all = read_back(fd);
    all.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
}

fn connecting(options: &SocketOptions) -> (Socket, Vec<OptionOutcome>) {
    let (socket, outcomes) = options.new_stream_socket(false, Stage::Connecting).unwrap();
    let answers = outcomes.in_words(options);
    (socket, answers)
}

fn one(options: &SocketOptions) -> OptionOutcome {
    let (_, answers) = connecting(options);
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

/// Everything that needs no privilege.
fn everything() -> SocketOptions {
    SocketOptions {
        congestion: vec!["reno".into()],
        pace: Some("25 Mbit/s".parse().unwrap()),
        rate: None,
        notsent_lowat: Some(Bytes::kib(16)),
        send_buffer: Some(Bytes::kib(128)),
        dscp: Some(34),
        receive_buffer: Some(Bytes::kib(256)),
        window_clamp: Some(Bytes::kib(64)),
        lock_buffers: Some(true),
        mss: Some(1200),
        syn_count: Some(3),
        user_timeout: Some(Span::from_secs(20)),
        rto_max: Some(Span::from_secs(5)),
        rto_min: Some(Span::from_millis(100)),
        keepalive_idle: Some(Span::from_secs(60)),
        keepalive_interval: Some(Span::from_secs(7)),
        keepalive_count: Some(4),
        no_delay: Some(true),
        mark: None,
        device: Some("lo".into()),
        source: Some(Ipv4Addr::LOCALHOST.into()),
        fast_open: Some(true),
        mptcp: Some(false),
    }
}

#[test]
fn nothing_asked_nothing_done() {
    let outcomes = SocketOptions::default().new_stream_socket(false, Stage::Connecting).unwrap().1;
    assert_eq!(outcomes, Outcomes::new(Stage::Connecting));
    assert!(outcomes.in_words(&SocketOptions::default()).is_empty());
}

#[test]
fn every_option_asked_is_answered_and_read_back_at_every_stage() {
    let options = everything();
    for stage in [Stage::Listening, Stage::Connecting] {
        let (socket, outcomes) = options.new_stream_socket(false, stage).unwrap();
        let answers = outcomes.in_words(&options);
        assert_eq!(answers.len(), Key::ALL.len() - 2, "all but mark and rate: {answers:?}");
        for answer in answers {
            if answer.option == "source" && stage == Stage::Listening {
                assert!(answer.refused.is_some());
                continue;
            }
            // an older kernel may lack some, and then says so
            if let Some(refused) = answer.refused {
                let fits = refused.contains("too old") || refused.contains("tcp_fastopen");
                assert!(fits, "{stage:?} {}: {refused}", answer.option);
                continue;
            }
            assert_eq!(answer.granted.as_ref(), Some(&answer.asked), "{}", answer.option);
            assert_eq!(get(socket.as_fd(), answer.option), answer.asked, "{}", answer.option);
        }
    }
}

#[test]
fn accepted_connections_inherit_and_nothing_is_dropped() {
    let options = everything();
    let (listener, _) = options.new_stream_socket(false, Stage::Listening).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(8).unwrap();
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let _client = TcpStream::connect(address).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let outcomes = options.apply(accepted.as_fd(), Stage::Accepted);
    let answers = outcomes.in_words(&options);
    assert_eq!(answers.len(), Key::ALL.len() - 2);
    for answer in &answers {
        match answer.option {
            // time stamps take 12 bytes of the segment
            "mss" => assert_eq!(
                (answer.granted.as_deref(), answer.refused.as_ref()),
                (Some("1188"), None)
            ),
            "syn_count" | "fast_open" => {
                assert!(answer.refused.as_ref().unwrap().contains("not applicable"));
            }
            "rto_max" | "rto_min" | "lock_buffers" if answer.refused.is_some() => {}
            _ => assert_eq!(answer.granted.as_ref(), Some(&answer.asked), "{answer:?}"),
        }
    }
    assert_eq!(get(accepted.as_fd(), "dscp"), "34");
    // and without a listening socket's help: granted, with its limits told
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(plain.local_addr().unwrap()).unwrap();
    let (accepted, _) = plain.accept().unwrap();
    let answers = options.apply(accepted.as_fd(), Stage::Accepted).in_words(&options);
    let answer = |name| answers.iter().find(|a| a.option == name).unwrap();
    assert!(answer("mss").refused.as_ref().unwrap().contains("listening socket"));
    assert!(answer("device").refused.as_ref().unwrap().contains("listening socket"));
    assert!(answer("receive_buffer").refused.as_ref().unwrap().contains("window's scale"));
    assert_eq!(answer("receive_buffer").granted.as_deref(), Some("256 KiB"));
}

/// A connection from a socket with `options` to a plain one; both ends.
fn connected(options: &SocketOptions) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (socket, _) = options.new_stream_socket(false, Stage::Connecting).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.connect(&listener.local_addr().unwrap().into()).unwrap();
    (socket.into(), listener.accept().unwrap().0)
}

#[test]
fn peer_sees_the_granted_options() {
    let (mut near, mut far) = connected(&everything());
    // the announced segment, less 12 bytes of time stamps
    assert_eq!(get(far.as_fd(), "mss"), "1188");
    assert_eq!(near.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    // the clamp settled the window's scale, which holds however much is read
    let writer = std::thread::spawn(move || {
        let mut largest = 0;
        for _ in 0..500 {
            far.write_all(&[0; 65_536]).unwrap();
            let info = TcpInfo::read(far.as_fd()).unwrap();
            largest = largest.max(info.snd_wnd.unwrap_or(0));
        }
        largest
    });
    io::copy(&mut near, &mut io::sink()).unwrap();
    let largest = writer.join().unwrap();
    assert!(largest < 2 * 65_536, "a window of {largest} bytes");
}

#[test]
fn a_clamp_after_the_handshake_is_not_promised() {
    let (near, _far) = connected(&SocketOptions::default());
    let options = SocketOptions { window_clamp: Some(Bytes::kib(64)), ..Default::default() };
    let answers = options.apply(near.as_fd(), Stage::Accepted).in_words(&options);
    assert_eq!(answers[0].granted.as_deref(), Some("64 KiB"));
    assert!(answers[0].refused.as_ref().unwrap().contains("listening socket"), "{answers:?}");
}

#[test]
fn options_hold_on_ipv6_too() {
    let options = SocketOptions {
        dscp: Some(46),
        source: Some(Ipv6Addr::LOCALHOST.into()),
        ..SocketOptions::default()
    };
    let Ok((socket, outcomes)) = options.new_stream_socket(true, Stage::Connecting) else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    assert_eq!(get(socket.as_fd(), "dscp"), "46");
    assert_eq!(sockopt::get_int(socket.as_fd(), IPPROTO_IP, libc::IP_TOS), Ok(46 << 2));
    assert!(!outcomes.refused(Key::Dscp));
    let ipv4 = SocketOptions { source: Some(Ipv4Addr::LOCALHOST.into()), ..Default::default() };
    let outcomes = ipv4.new_stream_socket(true, Stage::Connecting).unwrap().1;
    assert!(outcomes.in_words(&ipv4)[0].refused.as_ref().unwrap().contains("address family"));
}

#[test]
fn datagram_sockets_take_routing_options_but_no_tcp_options() {
    let options = SocketOptions {
        congestion: vec!["reno".to_owned()],
        mss: Some(1_000),
        no_delay: Some(true),
        dscp: Some(46),
        source: Some(Ipv4Addr::new(127, 0, 0, 9).into()),
        ..SocketOptions::default()
    };
    let (socket, outcomes) = options.new_datagram_socket(false).unwrap();
    assert_eq!(get(socket.as_fd(), "dscp"), "46");
    assert_eq!(
        socket.local_addr().unwrap().as_socket_ipv4().unwrap().ip().octets(),
        [127, 0, 0, 9]
    );
    for key in [Key::Dscp, Key::Source, Key::Congestion, Key::Mss, Key::NoDelay] {
        assert!(!outcomes.refused(key), "{key:?}");
    }
    // it does not wait
    let error = socket.recv(&mut [std::mem::MaybeUninit::uninit()]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn ecn_bits_are_left_alone() {
    let (socket, _) = connecting(&SocketOptions { dscp: Some(63), ..Default::default() });
    assert_eq!(sockopt::get_int(socket.as_fd(), IPPROTO_IP, libc::IP_TOS), Ok(63 << 2));
}

#[test]
fn congestion_controls_are_tried_in_order_and_each_refusal_is_told() {
    let options = SocketOptions {
        congestion: vec!["no-such-one".into(), "reno".into(), "cubic".into()],
        ..Default::default()
    };
    let (socket, answers) = connecting(&options);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0].asked, "no-such-one");
    assert_eq!(answers[0].granted, None);
    assert!(answers[0].refused.as_ref().unwrap().contains("not available"), "{answers:?}");
    assert_eq!((answers[1].asked.as_str(), answers[1].granted.as_deref()), ("reno", Some("reno")));
    assert_eq!(get(socket.as_fd(), "congestion"), "reno");
    // none granted: what the socket has instead is told
    let none = one(&SocketOptions { congestion: vec!["no-such-one".into()], ..Default::default() });
    assert!(none.granted.is_some() && none.refused.is_some());
}

#[test]
fn invalid_values_are_refused_with_their_range() {
    for (options, expected) in [
        (SocketOptions { mss: Some(10), ..Default::default() }, "88 B"),
        (SocketOptions { syn_count: Some(200), ..Default::default() }, "1 to 127"),
        (SocketOptions { dscp: Some(64), ..Default::default() }, "0 to 63"),
        (SocketOptions { keepalive_count: Some(0), ..Default::default() }, "1 to 127"),
        (SocketOptions { device: Some("nosuchdev0".into()), ..Default::default() }, "ip link"),
        (SocketOptions { source: "192.0.2.77".parse().ok(), ..Default::default() }, "192.0.2.77"),
        (SocketOptions { pace: "7 bit/s".parse().ok(), ..Default::default() }, "8 bit/s"),
    ] {
        let answer = one(&options);
        assert_eq!(answer.granted, None, "{answer:?}");
        assert!(answer.refused.as_ref().unwrap().contains(expected), "{answer:?}");
    }
}

#[test]
fn reports_a_buffer_beyond_the_kernel_limit() {
    let answer = one(&SocketOptions { send_buffer: Some(Bytes::new(100)), ..Default::default() });
    assert!(answer.granted.is_some());
    assert!(answer.refused.unwrap().contains("smallest"));
    // as root FORCE grants it, otherwise the reason names the sysctl and what to write to it
    let limit = sysctl::number("net.core.wmem_max").unwrap();
    let asked = Bytes::new(limit * 2 + (2 << 20));
    let answer = one(&SocketOptions { send_buffer: Some(asked), ..Default::default() });
    match answer.refused {
        None => assert_eq!(answer.granted, Some(asked.to_string())),
        Some(refused) => {
            let mend = format!("sysctl -w net.core.wmem_max={}", asked.as_u64() / 2);
            assert!(refused.contains(&mend), "{refused}");
            assert_eq!(answer.granted, Some(Bytes::new(limit * 2).to_string()));
        }
    }
}

#[test]
fn rounding_is_shown_and_is_no_refusal() {
    let odd = one(&SocketOptions { pace: "1001 bit/s".parse().ok(), ..Default::default() });
    assert_eq!((odd.granted.as_deref(), odd.refused), (Some("1 kbit/s"), None));
    let odd = one(&SocketOptions { user_timeout: "1500 us".parse().ok(), ..Default::default() });
    assert_eq!((odd.granted.as_deref(), odd.refused), (Some("2 ms"), None));
    let part = one(&SocketOptions { keepalive_idle: "1500 ms".parse().ok(), ..Default::default() });
    assert_eq!(part.granted.as_deref(), Some("2 s"));
    assert!(part.refused.unwrap().contains("whole seconds"));
}

#[test]
fn multipath_is_granted_or_falls_back_to_tcp() {
    let options = SocketOptions { mptcp: Some(true), no_delay: Some(true), ..Default::default() };
    let (socket, answers) = connecting(&options);
    let answer = answers.iter().find(|a| a.option == "mptcp").unwrap();
    assert_eq!(answer.granted.as_deref(), Some(get(socket.as_fd(), "mptcp").as_str()));
    assert_eq!(answer.refused.is_none(), answer.granted.as_deref() == Some("true"));
    // an existing plain socket says so
    let plain = stream(Domain::IPV4, Protocol::TCP).unwrap();
    let answers = options.apply(plain.as_fd(), Stage::Accepted).in_words(&options);
    let answer = answers.iter().find(|a| a.option == "mptcp").unwrap();
    assert_eq!(answer.granted.as_deref(), Some("false"));
}

#[test]
fn locked_buffers_can_be_given_back() {
    let options = SocketOptions {
        send_buffer: Some(Bytes::kib(64)),
        lock_buffers: Some(false),
        ..Default::default()
    };
    let (socket, answers) = connecting(&options);
    let lock = answers.iter().find(|a| a.option == "lock_buffers").unwrap();
    if lock.refused.is_none() {
        assert_eq!(get(socket.as_fd(), "lock_buffers"), "false");
        assert_eq!(get(socket.as_fd(), "send_buffer"), "64 KiB");
    }
}

#[test]
fn a_mark_is_granted_or_needs_a_capability() {
    let answer = one(&SocketOptions { mark: Some(7), ..Default::default() });
    assert!(
        answer.granted.as_deref() == Some("7") || answer.refused.unwrap().contains("CAP_NET_ADMIN")
    );
}

#[test]
fn sockets_do_not_block_and_are_closed_on_exec() {
    let (socket, _) = connecting(&SocketOptions::default());
    assert!(socket.nonblocking().unwrap());
    let info = std::fs::read_to_string(format!(
        "/proc/self/fdinfo/{}",
        std::os::fd::AsRawFd::as_raw_fd(&socket)
    ));
    let flags = info.unwrap().lines().find_map(|l| l.strip_prefix("flags:").map(str::to_owned));
    let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    assert_ne!(flags & libc::O_CLOEXEC, 0);
}
