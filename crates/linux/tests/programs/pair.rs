//! A connection whose near end has the options of a leg.

use ekiden_linux::bpf::Group;
use ekiden_linux::host::sysctl;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::units::Rate;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

pub(crate) fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

pub(crate) fn options(name: &str, group: Option<&Group>) -> SocketOptions {
    SocketOptions {
        congestion: vec![name.to_owned()],
        rate: group.cloned(),
        ..SocketOptions::default()
    }
}

/// A connection over loopback whose near end has the options, and whose far end reads.
pub(crate) struct Pair {
    pub(crate) near: TcpStream,
    pub(crate) far: TcpStream,
}

impl Pair {
    pub(crate) fn new(options: &SocketOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, outcomes) = options.new_stream_socket(false, Stage::Connecting).unwrap();
        assert!(!outcomes.any_refused(), "{:?}", outcomes.in_words(options));
        socket.set_nonblocking(false).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mut reads = far.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while reads.read(&mut bytes).is_ok_and(|read| read > 0) {}
        });
        Self { near: socket.into(), far }
    }

    /// Always has more to send.
    pub(crate) fn fill(&self) {
        let mut near = self.near.try_clone().unwrap();
        thread::spawn(move || while near.write_all(&[0; 1 << 16]).is_ok() {});
    }

    pub(crate) fn close(self) {
        // what waits is given up, and the thread that fills it ends
        ekiden_linux::sockets::socket::abort(self.near.as_fd()).unwrap();
        let _ = self.near.shutdown(std::net::Shutdown::Both);
    }

    pub(crate) fn pace(&self) -> u64 {
        TcpInfo::read(self.near.as_fd()).unwrap().pacing_rate.unwrap()
    }
}

pub(crate) fn is_available(name: &str) -> bool {
    let all = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap();
    all.split_whitespace().any(|other| other == name)
}
