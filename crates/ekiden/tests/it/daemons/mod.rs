//! Pairs of daemons with a tunnel between them, joined as their operators do it.

use ekiden_testbed::peers::ports;
use ekiden_testkit::{Daemon, Home};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
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

/// The user that owns nothing, on every Linux.
pub(crate) const NOBODY: u32 = 65_534;

/// The command in this folder, run as [`NOBODY`], who may write there. `None`, said aloud, where
/// the test does not run as root.
pub(crate) fn as_nobody(home: &Home, args: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        println!("SKIPPED: only root can run a command as another user");
        return None;
    }
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // in a place that everybody can reach
    let copy = home.path().join("ekiden-copy");
    if !copy.exists() {
        fs::copy(EKIDEN, &copy).unwrap();
    }
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(copy);
    Some(home.command_of(command, args))
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
    let joined = near.printed(&["peer", "join", token.trim(), "--name", "far", "--offline"]);
    assert!(joined.contains("uses it as an upstream"), "{joined}");
    [far, near]
}

/// A port of 127.0.0.1 that is free for TCP and UDP, and that no outgoing connection takes before a daemon does.
pub(crate) fn free_port() -> u16 {
    ports::free().unwrap().port()
}
