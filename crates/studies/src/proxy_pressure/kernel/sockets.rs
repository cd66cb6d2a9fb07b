//! A machine's TCP sockets as the kernel tells of them: how many, and their buffers by `ss -tm`.

use ekiden_emulator::topology::Host;
use ekiden_lab::engine::{During, EngineError};
use ekiden_testbed::peers::find;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// The two ends of a connection, this machine's first.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A socket's memory, bytes as the kernel counts; the names are ss(8)'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Memory {
    /// Received and not read.
    pub(super) r: u64,
    pub(super) rb: u64,
    /// Handed down to be sent.
    pub(super) t: u64,
    pub(super) tb: u64,
    /// Written and not yet sent, or not acknowledged.
    pub(super) w: u64,
}

/// TCP sockets in use on the machine of a process, those that listen too (`/proc/net/sockstat`).
pub(super) fn in_use(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/net/sockstat")).ok()?;
    let words = text.lines().find_map(|line| line.strip_prefix("TCP: inuse "))?;
    words.split(' ').next()?.parse().ok()
}

/// The memory of all connections on a host, by `ss -tm`. Errors: ss is not there or does not answer.
pub(super) fn memory(host: &Host) -> Result<BTreeMap<Ends, Memory>, EngineError> {
    let mut command = Command::new(find("ss", "iproute2")?);
    command.args(["-tmnHO"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = host.place(&mut command).and_then(|()| command.output()).during("ss")?;
    if !output.status.success() {
        return Err(EngineError(format!("ss ended with {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(line).collect())
}

/// `ESTAB 0 0 100.127.0.1:10000 100.127.0.2:40000 skmem:(r0,rb131072,t0,tb87040,f0,w0,o0,bl0,d0)`
fn line(text: &str) -> Option<(Ends, Memory)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ends = (words.get(3)?.parse().ok()?, words.get(4)?.parse().ok()?);
    let fields = words.iter().find_map(|word| word.strip_prefix("skmem:("))?.strip_suffix(')')?;
    let field = |name: &str| {
        // r and rb begin alike: what follows the name is a number
        let value = fields.split(',').find_map(|one| one.strip_prefix(name)?.parse::<u64>().ok());
        value.unwrap_or(0)
    };
    let memory =
        Memory { r: field("r"), rb: field("rb"), t: field("t"), tb: field("tb"), w: field("w") };
    Some((ends, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_line_of_ss() {
        let text = "ESTAB 0      9 100.127.0.1:10000 100.127.0.2:40000 \
                    skmem:(r1,rb131072,t2,tb87040,f3,w4,o0,bl0,d5) ";
        let (ends, memory) = line(text).unwrap();
        assert_eq!(ends.0, "100.127.0.1:10000".parse().unwrap());
        assert_eq!(ends.1.port(), 40_000);
        assert_eq!(memory, Memory { r: 1, rb: 131_072, t: 2, tb: 87_040, w: 4 });
        assert_eq!(line("SYN-SENT 0 1 a b"), None);
    }

    #[test]
    fn sockets_of_our_own_machine_are_counted() {
        let before = in_use(std::process::id()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // other tests open and close theirs meanwhile: that something is read is what can be said
        assert!(before < 1_000_000 && listener.local_addr().is_ok());
    }
}
