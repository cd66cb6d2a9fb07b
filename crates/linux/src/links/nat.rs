//! Masquerading: lets a namespace reach what the machine it is joined to reaches.
//!
//! A waiting `nft` owns a table that masquerades packets from one address; when it ends, the kernel
//! removes the table (`flags owner`, Linux ≥ 5.12). [`crate::links::forwarding`] lets packets pass.

use crate::host::sysctl;
use crate::namespaces::netns::{Netns, place};
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
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum NatError {
    #[error(
        "the far end reaches this machine only; to reach further it needs nft (apt-get install nftables)"
    )]
    Missing,
    #[error("the far end reaches this machine only: {}", .0.trim())]
    Refused(String),
}

impl Nat {
    /// Masquerades packets from these addresses in `outer`. IPv6 only where it is forwarded
    /// already: switching that on would make the machine ignore its router's advertisements.
    /// Errors: [`NatError`]; nothing has changed then.
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

    /// The missing requirement.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        end(&mut self.nft);
    }
}

fn end(child: &mut Child) {
    drop(child.stdin.take());
    let _ = child.wait();
}

fn start_nft(outer: &Netns) -> Result<Child, NatError> {
    let mut command = Command::new("nft");
    // in a process group of its own, so that the terminal's signals do not reach it
    command.arg("-i").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    place(&mut command, outer).map_err(|error| NatError::Refused(error.to_string()))?;
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NatError::Missing,
        _ => NatError::Refused(format!("nft: {error}")),
    })
}

/// One line, since `nft -i` reads lines; the link's address names the table.
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
    // its answer, always one line, shows that it is done, whether the table exists or not
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
