//! Upstream proxies that answer by a script.

use crate::harness::loopback;
use ekiden_proxy::settings::{Credentials, Settings, Upstream, UpstreamProtocol};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Names an upstream proxy in the settings.
pub(crate) fn add(
    settings: &mut Settings,
    name: &str,
    protocol: &str,
    at: SocketAddr,
    credentials: Option<(&str, &str)>,
) {
    let protocol = match protocol {
        "http" => UpstreamProtocol::Http,
        _ => UpstreamProtocol::Socks5,
    };
    let credentials = credentials
        .map(|(user, password)| Credentials { user: user.into(), password: password.into() });
    let upstream =
        Upstream { credentials, ..Upstream::new(protocol, at.ip().to_string(), at.port()) };
    settings.upstreams.insert(name.into(), upstream);
}

/// What an upstream does with a connection.
#[derive(Clone, Copy)]
pub(crate) enum Script {
    /// Reads, and says nothing.
    Silent,
    /// Closes once it was asked.
    Close,
    /// Resets at once.
    Reset,
    /// Reads the request and says this.
    Say(&'static [u8]),
}

/// A scripted upstream, and how often it was connected to.
pub(crate) fn scripted(script: Script) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    (listener.local_addr().unwrap(), scripted_on(listener, script))
}

/// The same on this listener.
pub(crate) fn scripted_on(listener: TcpListener, script: Script) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            counted.fetch_add(1, SeqCst);
            std::thread::spawn(move || play(script, stream));
        }
    });
    count
}

fn play(script: Script, mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    if let Script::Reset = script {
        let _ = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
        return;
    }
    let _ = stream.read(&mut buffer);
    match script {
        Script::Say(text) => {
            let _ = stream.write_all(text);
        }
        Script::Close | Script::Reset => return,
        Script::Silent => {}
    }
    // until the relay gives up
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

/// An address on which nothing listens. Each call has a loopback address of its own, because another
/// test's connection may take a port of 127.0.0.1 before the caller listens on it.
pub(crate) fn refusing() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let address = [127, 99, process::id() as u8, CALLS.fetch_add(1, Relaxed)];
    TcpListener::bind((Ipv4Addr::from(address), 0)).unwrap().local_addr().unwrap()
}
