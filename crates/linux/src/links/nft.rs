//! A conversation with `nft`, the tool of nftables: a child that reads transactions for as long as this
//! lives. Tables with `flags owner` (Linux ≥ 5.12) belong to its netlink socket, so the kernel removes
//! them with it, however either program ends.

use crate::namespaces::netns::{Netns, place};
use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long one transaction may take: the kernel waits for its readers, and may load modules.
const PATIENCE: Duration = Duration::from_secs(20);

/// A question whose answer is always the one line that begins with [`DESCRIBED`]: what comes before it
/// belongs to the transaction before it.
const DESCRIBE: &str = "describe ip saddr\n";
const DESCRIBED: &str = "payload expression, datatype ipv4_addr";

/// `nft`, until dropped.
#[derive(Debug)]
pub struct Nft {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// Why a transaction was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NftError {
    /// The program is not installed.
    #[error("it needs nft (apt-get install nftables)")]
    Missing,
    /// In nft's words, or the system's.
    #[error("nft does not take the rules: {}", .0.trim())]
    Refused(String),
}

impl From<io::Error> for NftError {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl Nft {
    /// Starts it, in `netns` or where the caller is. Errors: [`NftError::Missing`], or no process or
    /// descriptor is left.
    pub fn start(netns: Option<&Netns>) -> Result<Self, NftError> {
        let mut command = Command::new("nft");
        // in a process group of its own, so that the terminal's signals do not reach it
        command.arg("-i").process_group(0);
        // errors and answers in one stream, so that they come in order
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        if let Some(netns) = netns {
            place(&mut command, netns)?;
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NftError::Missing,
            _ => error.into(),
        })?;
        // with the command goes this program's end of the pipe
        drop(command);
        let stdin = child.stdin.take();
        let lines = read_lines(reader)?;
        Ok(Self { child, stdin, lines })
    }

    /// Carries out one transaction, all of it or nothing; line feeds end statements. Errors: nft's.
    pub fn run(&mut self, transaction: &str) -> Result<(), NftError> {
        let ended = || NftError::Refused("it ended".to_owned());
        let stdin = self.stdin.as_mut().ok_or_else(ended)?;
        // it reads line by line, and a line is a transaction
        let line = transaction.trim_end().replace('\n', "; ");
        stdin.write_all(format!("{line}\n{DESCRIBE}").as_bytes())?;
        let mut why = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with(DESCRIBED) => break,
                Ok(line) => why.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(NftError::Refused(format!("no answer within {PATIENCE:?}")));
                }
                Err(RecvTimeoutError::Disconnected) if why.is_empty() => return Err(ended()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // an error is followed by the line and a row that points into it
        let mut errors = why.iter().filter_map(|line| line.strip_prefix("Error: "));
        match errors.next() {
            None if why.is_empty() => Ok(()),
            None => Err(NftError::Refused(why.join("; "))),
            Some(first) => Err(NftError::Refused(first.to_owned())),
        }
    }

    /// Whether it still runs; its tables are gone otherwise.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // it ends with its input
        let _ = self.child.wait();
    }
}

fn read_lines(reader: PipeReader) -> io::Result<Receiver<String>> {
    let (sender, lines) = channel();
    let read = move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("nft".into()).spawn(read)?;
    Ok(lines)
}
