//! Legs whose rate the kernel holds.

use crate::harness::*;
use ekiden_linux::bpf::{Control, Group, Loaded, Terms};
use ekiden_linux::host::sysctl;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_proxy::settings::{HostPattern, Leg, Pattern, Settings};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn loaded() -> Option<Loaded> {
    let loaded = Loaded::load(Control::Hold).map_err(|missing| {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        println!("SKIPPED: {missing}");
    });
    loaded.ok()
}

fn holding(loaded: &Loaded, group: &Group) -> Leg {
    leg(SocketOptions {
        congestion: vec![loaded.name().to_owned()],
        rate: Some(group.clone()),
        ..SocketOptions::default()
    })
}

#[test]
fn new_connections_do_not_inherit_a_former_rate_of_the_listener() {
    let Some(loaded) = loaded() else { return };
    let group = loaded.group("client", Terms::new("4 Mbit/s".parse().unwrap())).unwrap();
    let mut first = settings();
    first.legs.insert("client".into(), holding(&loaded, &group));
    let relay = Relay::start(first);
    let to = echo();
    let (_, mut old) = connect(relay.address, to);
    assert!(echoes(&mut old));
    assert_eq!(relay.relayed().legs[0].congestion, loaded.name());
    relay.reload(Settings { listen: vec![relay.address], ..settings() }).unwrap();
    let (_, mut new) = connect(relay.address, to);
    assert!(echoes(&mut old) && echoes(&mut new));
    let all = relay.status().connections;
    let has: Vec<_> = all.iter().map(|one| one.legs[0].congestion.as_str()).collect();
    let default = sysctl::read("net.ipv4.tcp_congestion_control").unwrap();
    assert_eq!(has, [loaded.name(), &default]);
}

/// Answers with so many bytes.
fn server(length: usize) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                while !read_head(&mut stream).is_empty() {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes());
                    let _ = stream.write_all(&vec![0; length]);
                }
            });
        }
    });
    address
}

#[test]
fn bulk_stays_in_its_lane_on_another_client_leg() {
    let Some(loaded) = loaded() else { return };
    let group = loaded.group("over", Terms::new("4 Mbit/s".parse().unwrap())).unwrap();
    let (fast, held) = (server(1 << 20), server(1 << 26));
    let mut settings = settings();
    settings.legs.insert("over".into(), holding(&loaded, &group));
    let to = Pattern { host: HostPattern::Any, ports: Some((held.port(), held.port())) };
    let mut way = route(vec![to], &[&[]]);
    way.client_leg = "over".into();
    settings.routes.push(way);
    let relay = Relay::start(settings);
    let mut stream = TcpStream::connect(relay.address).unwrap();
    let mut ask = |to| {
        write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).contains(" 200 "));
        stream.try_clone().unwrap()
    };
    ask(fast).read_exact(&mut vec![0; 1 << 20]).unwrap();
    let mut rest = ask(held);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while rest.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    // who goes first is not among those that the rate is divided among
    wait_for("group.seen().unwrap().weights == 1", || group.seen().unwrap().weights == 1);
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
