//! Pairs of daemons with a tunnel between them, joined as their operators do it.

use ekiden_testkit::{Daemon, Home};
use std::net::{TcpListener, UdpSocket};
use std::process::Output;
use std::sync::Arc;

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// A folder with this configuration.
pub(crate) fn home(config: &str) -> Arc<Home> {
    Home::new(EKIDEN, config)
}

/// The daemon with this configuration, in a folder of its own.
pub(crate) fn daemon(config: &str) -> Daemon {
    home(config).serve()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn tunnel_is_up(daemon: &Daemon) -> bool {
    let status = daemon.status();
    status["tunnels"].as_array().unwrap().iter().any(|tunnel| tunnel["up"] == true)
}

/// The far daemon's folder and the near one's, joined; `more` is appended to each
/// configuration, behind its keys of `[tunnel]`.
pub(crate) fn pair(rates: [&str; 2], more: [&str; 2]) -> [Arc<Home>; 2] {
    pair_through(rates, more, |port| port)
}

/// The same, where the near daemon reaches the far one at another port.
pub(crate) fn pair_through(
    rates: [&str; 2],
    more: [&str; 2],
    port_for_near: impl FnOnce(u16) -> u16,
) -> [Arc<Home>; 2] {
    let port = free_port();
    let access = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";
    let far = home(&format!(
        "{access}[tunnel]\nlisten = [\"127.0.0.1:{port}\"]\nstate = \"DIR/state\"\n{}",
        more[0]
    ));
    let near = home(&format!(
        "{access}[upstream.far]\nurl = \"tunnel://far\"\n[[route]]\nthrough = [\"far\"]\n[tunnel]\nstate = \"DIR/state\"\n{}",
        more[1]
    ));
    let address = format!("127.0.0.1:{}", port_for_near(port));
    let invite = ["peer", "invite", "--name", "near", "--address", &address];
    let token = far.printed(&[&invite[..], &["--send", rates[0], "--receive", rates[1]]].concat());
    assert!(token.starts_with("ekiden1-"), "{token}");
    let joined = near.printed(&["peer", "join", token.trim(), "--name", "far"]);
    assert!(joined.contains("url = \"tunnel://far\""), "{joined}");
    [far, near]
}

/// A port that is free now, for UDP and TCP.
fn free_port() -> u16 {
    loop {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
