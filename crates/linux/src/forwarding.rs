//! Letting packets of others pass this machine (`net.ipv4.ip_forward`), as long as one of us needs it.
//!
//! A process of its own switches it on, waits for the end of its standard input, which comes with the
//! end of all who hold the other side, and switches it off again if it was the last of its kind.

use crate::netns::Netns;
use crate::sysctl;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

const FORWARD: &str = "net.ipv4.ip_forward";

/// Forwarding is on, until the last process that holds this, or a fork's copy of it, has ended.
#[derive(Debug)]
pub struct Forwarding {
    _guardian: Child,
}

/// What the guardian does; `$1` is its lock. Locks are shared between all that need forwarding, and
/// who gets it alone is the last.
const GUARDIAN: &str = "\
    trap '' INT TERM HUP QUIT\n\
    exec 9>>\"$1\" && flock --shared 9 || exit 1\n\
    echo 1 >/proc/sys/net/ipv4/ip_forward || exit 1\n\
    echo on; exec >/dev/null 2>&1\n\
    cat >/dev/null\n\
    flock --unlock 9\n\
    if flock --nonblock --exclusive 9; then\n\
        echo 0 >/proc/sys/net/ipv4/ip_forward; rm -f \"$1\"\n\
    fi\n";

impl Forwarding {
    /// Switches it on in the calling thread's network namespace, for IPv4. `None` when it is on for
    /// reasons of its own. Call it before [`crate::sandbox::enter`]: the guardian must outlive that.
    ///
    /// # Errors
    /// Without the privilege, or without `flock` (util-linux).
    pub fn start() -> io::Result<Option<Self>> {
        let lock = lock()?;
        // nobody of us holds it: then who switched it on is somebody else
        let ours = File::open(&lock).is_ok_and(|file| file.try_lock().is_err());
        if !ours && sysctl::number(FORWARD) == Some(1) {
            return Ok(None);
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARDIAN).arg("ekiden-forwarding").arg(&lock);
        // a group of its own: the terminal's keys are not for it
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guardian = command.spawn()?;
        let mut answer = String::new();
        if let Some(stdout) = guardian.stdout.take() {
            BufReader::new(stdout).read_line(&mut answer)?;
        }
        if answer.trim() == "on" {
            return Ok(Some(Self { _guardian: guardian }));
        }
        let status = guardian.wait()?;
        Err(io::Error::other(format!("forwarding cannot be switched on ({status})")))
    }
}

/// One for each network namespace.
fn lock() -> io::Result<String> {
    let netns = Netns::current()?;
    let number = fs::metadata(format!("/proc/self/fd/{}", netns.as_fd().as_raw_fd()))?.ino();
    Ok(format!("/run/lock/ekiden-forwarding-{number}"))
}
