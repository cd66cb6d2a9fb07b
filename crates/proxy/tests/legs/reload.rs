//! A new configuration while connections live.

use crate::harness::*;
use crate::upstream::{add, refusing};
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::read_back::read_back;
use ekiden_proxy::settings::{HostPattern, Pattern, Settings};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;

fn listening(at: &[SocketAddr]) -> Settings {
    Settings { listen: at.to_vec(), ..settings() }
}

fn open(relay: &Relay, at: SocketAddr) -> TcpStream {
    let (head, mut stream) = connect(at, echo());
    assert!(head.contains(" 200 ") && echoes(&mut stream), "{head} {:?}", relay.status().listen);
    stream
}

#[test]
fn live_connections_keep_their_route_and_new_ones_take_the_new() {
    let hop = Relay::start(settings());
    let relay = Relay::start(settings());
    let mut old = open(&relay, relay.address);
    let mut new = listening(&[relay.address]);
    add(&mut new, "hop", "http", hop.address, None);
    new.routes.push(route(vec![], &[&["hop"]]));
    relay.reload(new).unwrap();
    assert!(echoes(&mut old));
    let mut fresh = open(&relay, relay.address);
    let status = relay.status();
    assert!(status.connections[0].through.is_empty());
    assert_eq!(
        (status.connections[1].through.as_slice(), status.reloads),
        (&["hop".into()][..], 1)
    );
    assert!(echoes(&mut old) && echoes(&mut fresh));
}

#[test]
fn a_reload_adds_and_removes_listeners() {
    let relay = Relay::start(settings());
    let first = relay.address;
    let second = refusing();
    let mut old = open(&relay, first);
    relay.reload(listening(&[first, second])).unwrap();
    open(&relay, first);
    open(&relay, second);
    relay.reload(listening(&[second])).unwrap();
    wait_for("TcpStream::connect(first).is_err()", || TcpStream::connect(first).is_err());
    open(&relay, second);
    assert!(echoes(&mut old), "it outlives the address it came by");
}

#[test]
fn a_reload_widens_and_narrows_the_addresses_of_a_port() {
    for (narrow, wide) in [("127.0.0.1", "0.0.0.0"), ("::1", "::")] {
        let [narrow, wide] = [narrow, wide].map(|ip| ip.parse::<IpAddr>().unwrap());
        // free at every address
        let free = TcpListener::bind((wide, 0)).unwrap().local_addr().unwrap();
        let relay = Relay::start(listening(&[SocketAddr::new(narrow, free.port())]));
        let narrow = relay.address;
        let wide = SocketAddr::new(wide, narrow.port());
        let taken = TcpListener::bind(loopback(0)).unwrap();
        let mut old = open(&relay, narrow);
        for (now, next) in [(narrow, wide), (wide, narrow), (narrow, wide)] {
            let error = relay.reload(listening(&[next, taken.local_addr().unwrap()])).unwrap_err();
            assert!(error.to_string().contains("already in use"), "{error}");
            assert_eq!(relay.status().listen, [now]);
            open(&relay, narrow);
            relay.reload(listening(&[next])).unwrap();
            assert_eq!(relay.status().listen, [next]);
            open(&relay, narrow);
            // no other program shares the port
            assert!([narrow, wide].iter().all(|at| TcpListener::bind(at).is_err()));
        }
        assert!(echoes(&mut old));
    }
}

#[test]
fn a_failed_reload_changes_nothing() {
    let relay = Relay::start(settings());
    let taken = TcpListener::bind(loopback(0)).unwrap();
    let mut old = open(&relay, relay.address);
    // the first is to be had, and then the second is not
    let error = relay.reload(listening(&[refusing(), taken.local_addr().unwrap()])).unwrap_err();
    assert!(error.to_string().contains("already in use"), "{error}");
    let mut wrong = listening(&[relay.address]);
    wrong.routes.push(route(vec![], &[&["nobody"]]));
    assert!(relay.reload(wrong).unwrap_err().to_string().contains("no upstream \"nobody\""));
    let mut unwritable = listening(&[relay.address]);
    unwritable.access_log =
        ekiden_proxy::settings::AccessLog::File("/nonexistent/access.log".into());
    assert!(relay.reload(unwritable).unwrap_err().to_string().contains("access log"));
    assert!(echoes(&mut old));
    open(&relay, relay.address);
    let status = relay.status();
    assert_eq!((status.listen, status.reloads), (vec![relay.address], 0));
}

#[test]
fn a_reopened_access_log_gets_later_records() {
    let dir = tempfile::tempdir().unwrap();
    let with_log = |at: SocketAddr, name: &str| {
        let access_log = ekiden_proxy::settings::AccessLog::File(dir.path().join(name));
        Settings { access_log, ..listening(&[at]) }
    };
    let relay = Relay::start(with_log(loopback(0), "old"));
    let stream = open(&relay, relay.address);
    relay.reload(with_log(relay.address, "new")).unwrap();
    drop(stream);
    let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    wait_for("read('new').contains('\'connect\'')", || read("new").contains("\"connect\""));
    assert_eq!(read("old"), "");
}

#[test]
fn a_listener_that_stays_takes_the_new_options() {
    let relay = Relay::start(settings());
    let mut new = listening(&[relay.address]);
    let options = SocketOptions { mss: Some(1100), dscp: Some(12), ..SocketOptions::default() };
    new.legs.insert("client".into(), leg(options));
    relay.reload(new).unwrap();
    let _stream = open(&relay, relay.address);
    let near = &relay.relayed().legs[0];
    let socket = own_socket(near.local.unwrap(), near.peer).unwrap();
    let has: std::collections::BTreeMap<_, _> = read_back(socket.as_fd()).into_iter().collect();
    assert_eq!((has["mss"].as_str(), has["dscp"].as_str()), ("1088", "12"));
}

#[test]
fn a_kept_connection_takes_the_profile_of_its_new_route() {
    let answer = || {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                while !read_head(&mut stream).is_empty() {
                    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    let _ = stream.write_all(text);
                }
            }
        });
        address
    };
    let (plain, marked) = (answer(), answer());
    let mut settings = settings();
    let dscp = |dscp| leg(SocketOptions { dscp: Some(dscp), ..SocketOptions::default() });
    settings.legs.insert("client".into(), dscp(10));
    settings.legs.insert("over".into(), dscp(20));
    let to = Pattern { host: HostPattern::Any, ports: Some((marked.port(), marked.port())) };
    let mut way = route(vec![to], &[&[]]);
    way.client_leg = "over".into();
    settings.routes.push(way);
    let relay = Relay::start(settings);
    let mut stream = TcpStream::connect(relay.address).unwrap();
    for (to, profile, dscp) in
        [(plain, "client", "10"), (marked, "over", "20"), (plain, "client", "10")]
    {
        write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).contains(" 200 "));
        stream.read_exact(&mut [0; 2]).unwrap();
        let near = relay.relayed().legs.remove(0);
        assert_eq!(near.profile, profile);
        let socket = own_socket(near.local.unwrap(), near.peer).unwrap();
        assert!(read_back(socket.as_fd()).contains(&("dscp", dscp.to_owned())), "{to}");
    }
}
