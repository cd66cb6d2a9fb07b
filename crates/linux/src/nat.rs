//! Letting a namespace reach, through the machine it is joined to, what that machine reaches.
//!
//! Packets from one address are masqueraded by a table of nftables that belongs to a process of ours:
//! an `nft` that waits for more commands. When that ends, for whatever reason, the kernel removes the
//! table (`flags owner`, Linux ≥ 5.12). [`crate::forwarding`] lets packets pass at all.

use crate::netns::{Netns, place};
use crate::sysctl;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

const FORWARD_V6: &str = "net.ipv6.conf.all.forwarding";

/// Masquerading, until dropped.
#[derive(Debug)]
pub struct Nat {
    nft: Child,
    notes: Vec<String>,
}

/// Why there is none.
#[derive(Debug)]
pub enum NatError {
    /// `nft` is not installed.
    Missing,
    /// The kernel or `nft` refused.
    Refused(String),
}

impl std::fmt::Display for NatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the far end is this machine alone, and not what it reaches: ")?;
        match self {
            Self::Missing => f.write_str("that takes nft (apt-get install nftables)"),
            Self::Refused(why) => f.write_str(why.trim()),
        }
    }
}

impl std::error::Error for NatError {}

impl Nat {
    /// Masquerades what comes from these addresses in `outer`. IPv6 only where it is forwarded
    /// already: switching that on would have the machine ignore its router's advertisements.
    ///
    /// # Errors
    /// [`NatError`]; then nothing has changed.
    pub fn start(outer: &Netns, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<Self, NatError> {
        let v6_too = sysctl::read_in(outer, FORWARD_V6).is_some_and(|value| value != "0");
        let mut nft = start_nft(outer)?;
        let rules = rules(v4, v6_too.then_some(v6));
        if let Err(why) = install(&mut nft, &rules) {
            end(&mut nft);
            return Err(why);
        }
        let mut this = Self { nft, notes: Vec::new() };
        if !v6_too {
            this.notes.push(
                "beyond this machine by IPv4 alone: it does not forward IPv6 \
                 (sysctl net.ipv6.conf.all.forwarding=1)"
                    .to_owned(),
            );
        }
        Ok(this)
    }

    /// What could not be had.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        end(&mut self.nft);
    }
}

/// It ends at the end of its standard input.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    let _ = child.wait();
}

fn start_nft(outer: &Netns) -> Result<Child, NatError> {
    let mut command = Command::new("nft");
    // a group of its own: the terminal's keys are not for it
    command.arg("-i").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    place(&mut command, outer).map_err(|error| NatError::Refused(error.to_string()))?;
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NatError::Missing,
        _ => NatError::Refused(format!("nft: {error}")),
    })
}

/// One line, since `nft -i` reads lines; the table is named by the link's address, so that several can be.
fn rules(v4: Ipv4Addr, v6: Option<Ipv6Addr>) -> String {
    let v6 = v6.map_or_else(String::new, |v6| format!("ip6 saddr {v6} masquerade; "));
    let name = format!("ekiden_link_{}", v4.to_bits());
    format!(
        "add table inet {name} {{ flags owner; chain out {{ type nat hook postrouting priority srcnat; \
         ip saddr {v4} masquerade; {v6}}}; }}\nlist table inet {name}\n"
    )
}

/// Hands over the rules; they hold once the table can be listed.
fn install(nft: &mut Child, rules: &str) -> Result<(), NatError> {
    let refused = |why: String| NatError::Refused(format!("nft does not take the rules: {why}"));
    let (Some(stdin), Some(stdout)) = (&mut nft.stdin, &mut nft.stdout) else {
        return Err(refused("it has no standard input".to_owned()));
    };
    stdin.write_all(rules.as_bytes()).map_err(|error| refused(error.to_string()))?;
    // its answer, always a line, says when it is through, whether the table is there or not
    stdin.write_all(b"describe ip saddr\n").map_err(|error| refused(error.to_string()))?;
    let mut lines = BufReader::new(stdout).lines();
    let listed = lines.next().and_then(Result::ok).unwrap_or_default();
    if listed.contains("ekiden_link") {
        return Ok(());
    }
    drop(nft.stdin.take());
    let mut why = String::new();
    if let Some(stderr) = &mut nft.stderr {
        let _ = io::Read::read_to_string(stderr, &mut why);
    }
    Err(refused(why))
}
