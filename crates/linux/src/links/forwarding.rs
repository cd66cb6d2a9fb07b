//! IP forwarding on this machine (`net.ipv4.ip_forward`), as long as one of our processes needs it.
//!
//! A guardian process switches it on, waits for the end of its standard input, which closes with
//! the last holder, and switches it off if it was the last guardian.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Forwarding is on, until the last process that holds this, or a fork's copy of it, has ended.
#[derive(Debug)]
pub struct Forwarding {
    _guardian: Child,
}

/// The guardian's script. The namespace's settings serve as locks, so no file is left: 9 is shared
/// by all guardians, 8 is held while deciding, 7 is for the end, when no descriptor may be left.
/// Whoever gets 9 exclusively is the first or the last.
const GUARDIAN: &str = "\
    trap '' INT TERM HUP QUIT\n\
    cd /\n\
    exec 7>/proc/sys/net/ipv4/ip_forward 8</proc/sys/net/ipv4/ip_forward 9</proc/sys/net/ipv4/conf/all/forwarding || exit 1\n\
    flock --timeout 5 8 || exit 1\n\
    if flock --nonblock 9 && [ \"$(cat /proc/sys/net/ipv4/ip_forward)\" = 1 ]; then\n\
        echo already; exit\n\
    fi\n\
    flock --nonblock --shared 9 && echo 1 >/proc/sys/net/ipv4/ip_forward || exit 1\n\
    flock --unlock 8\n\
    echo on; exec >/dev/null 2>&1\n\
    cat >/dev/null\n\
    flock --timeout 5 8\n\
    flock --nonblock 9 && exec >&7 && echo 0\n";

impl Forwarding {
    /// Switches IPv4 forwarding on in the calling thread's network namespace; `None` when it is on
    /// already. Call it before [`crate::namespaces::sandbox::enter`], which the guardian must
    /// outlive. Errors: no privilege, or no `flock` (util-linux).
    pub fn start() -> io::Result<Option<Self>> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARDIAN).arg("ekiden-forwarding");
        // in a process group of its own, so that the terminal's signals do not reach it
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
        if answer.trim() == "already" {
            return Ok(None);
        }
        Err(io::Error::other(format!(
            "net.ipv4.ip_forward cannot be switched on ({status}); that takes root, a /proc/sys that \
             can be written and flock (apt-get install util-linux)"
        )))
    }
}
