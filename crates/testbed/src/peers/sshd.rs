//! OpenSSH's server with a host key and a user key of its own: [`Ssh::options`] has what a client needs.

use super::process::{Preparation, io_error};
use super::{Peer, PeerError, Protocol, Start, find};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running sshd and the key that opens it.
#[derive(Debug)]
pub struct Ssh {
    /// The server.
    pub peer: Peer,
    /// The private key it lets in.
    pub key: PathBuf,
    known_hosts: PathBuf,
}

impl Ssh {
    /// Arguments for `ssh`: this key, this host, nothing of the user's own configuration.
    pub fn options(&self) -> Vec<String> {
        let known = format!("UserKnownHostsFile={}", self.known_hosts.display());
        let fixed = ["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o"];
        let mut options: Vec<String> = fixed.map(str::to_owned).into();
        options.push(known);
        options.extend(["-i".to_owned(), self.key.display().to_string()]);
        options.extend(["-p".to_owned(), self.peer.address.port().to_string()]);
        options
    }
}

/// Starts sshd.
pub fn start(start: &Start) -> Result<Ssh, PeerError> {
    let peer = Preparation::new(start, "sshd", ("sshd", "openssh-server"), "-V")?;
    let keygen = find("ssh-keygen", "openssh-client")?;
    // A root sshd separates its privileges into this folder, which a boot would have made.
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all("/run/sshd").map_err(|error| io_error("sshd", error))?;
    }
    for name in ["host", "user"] {
        key(&keygen, &peer.path(name))?;
    }
    let read = |name: &str| {
        std::fs::read_to_string(peer.path(name)).map_err(|error| io_error("sshd", error))
    };
    let (ip, port) = (peer.address.ip(), peer.address.port());
    let known_hosts = peer.write("known_hosts", format!("[{ip}]:{port} {}", read("host.pub")?))?;
    let file = peer.write(
        "sshd_config",
        format!(
            "ListenAddress {ip}:{port}
HostKey {host}
AuthorizedKeysFile {user}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
",
            host = peer.path("host").display(),
            user = peer.path("user.pub").display(),
        ),
    )?;
    let key = peer.path("user");
    // -D: foreground, -e: log to standard error.
    let arguments = ["-D".into(), "-e".into(), "-f".into(), file.into_os_string()];
    let peer = peer.start(start, arguments, Protocol::SshServer)?;
    Ok(Ssh { peer, key, known_hosts })
}

fn key(keygen: &Path, file: &Path) -> Result<(), PeerError> {
    let made = Command::new(keygen)
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(file)
        .output()
        .map_err(|error| io_error("ssh-keygen", error))?;
    if made.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&made.stderr).into_owned();
    Err(io_error("ssh-keygen", std::io::Error::other(message)))
}
