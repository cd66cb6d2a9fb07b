//! Upstream proxies that answer by a script.

use crate::harness::loopback;
use ekiden_proxy::settings::{Credentials, Settings, Upstream, UpstreamProtocol};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Names an upstream proxy in the settings.
pub(crate) fn add(
    settings: &mut Settings,
    name: &str,
    protocol: &str,
    at: SocketAddr,
    credentials: Option<(&str, &str)>,
) {
    let upstream = Upstream {
        protocol: match protocol {
            "http" => UpstreamProtocol::Http,
            _ => UpstreamProtocol::Socks5,
        },
        host: at.ip().to_string(),
        port: at.port(),
        credentials: credentials
            .map(|(user, password)| Credentials { user: user.into(), password: password.into() }),
        leg: "direct".into(),
    };
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
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            counted.fetch_add(1, SeqCst);
            std::thread::spawn(move || play(script, stream));
        }
    });
    (address, count)
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

/// An address on which nothing listens.
pub(crate) fn refusing() -> SocketAddr {
    TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap()
}
