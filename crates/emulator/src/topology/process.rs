//! A program on a machine: started, waited for until it listens, ended with all it started.

use super::{BuildError, Host, ProcessPlan};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const GRACE: Duration = Duration::from_secs(2);

/// Between two looks at who listens; each takes a thread.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

const TCP: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
const UDP: [&str; 2] = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
// include/net/tcp_states.h; of UDP, TCP_CLOSE is a socket that no peer was named to
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// A running program, ended when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `plan`'s program on `host` and waits until it is ready. Errors: it cannot be started, ends at
    /// once, or does not listen within `patience`.
    pub fn start(host: &Host, plan: &ProcessPlan, patience: Duration) -> Result<Self, BuildError> {
        let what = format!("`{}` on {}", plan.command, plan.host);
        let failed = |why: String| BuildError::Process(format!("{what}: {why}"));
        let mut command = Command::new("sh");
        command.arg("-c").arg(&plan.command).stdin(Stdio::null()).process_group(0);
        // standard output belongs to the command that is run on purpose
        if let Ok(stderr) = std::io::stderr().as_fd().try_clone_to_owned() {
            command.stdout(stderr);
        }
        host.place(&mut command).map_err(|error| failed(error.to_string()))?;
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut this = Self { child };
        let begun = Instant::now();
        while let Some(port) = plan.ready
            && !host.run(|| ports(TCP, LISTENS))?.contains(&port)
        {
            if let Some(status) = this.ended() {
                let why = format!("it ended ({status}) instead of listening on port {port}");
                return Err(failed(why));
            }
            if begun.elapsed() >= patience {
                let secs = patience.as_secs();
                return Err(failed(format!("it does not listen on port {port} after {secs} s")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(this)
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(group) = Pid::from_raw(self.child.id().cast_signed()) else { return };
        let _ = kill_process_group(group, Signal::TERM);
        let begun = Instant::now();
        while self.ended().is_none() && begun.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        // what it left behind in its group, too
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Whether somebody on the calling thread's machine listens for connections or datagrams.
pub(crate) fn listening() -> bool {
    !ports(TCP, LISTENS).is_empty() || !ports(UDP, UNCONNECTED).is_empty()
}

/// Ports of sockets in this state, on the calling thread's machine.
fn ports(files: [&str; 2], state: &str) -> Vec<u16> {
    let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let ports = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let port = words.next()?.rsplit(':').next()?;
        (words.nth(1)? == state).then(|| u16::from_str_radix(port, 16).ok())?
    });
    ports.collect()
}
