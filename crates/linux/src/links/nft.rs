//! A conversation with `nft`, the tool of nftables: a child that reads transactions for as long as this
//! lives. Tables with `flags owner` (Linux ≥ 5.12) belong to its netlink socket, so the kernel removes
//! them with it, however either program ends.
//!
//! A child that does not answer in time is killed: its answer would be taken for that of a later transaction.

use crate::namespaces::netns::{Netns, place};
use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long one transaction may take: the kernel waits for its readers, and may load modules.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the last transaction may take, and then the end of the child: it closes a socket.
const LAST_PATIENCE: Duration = Duration::from_secs(3);

/// A question whose answer is always the one line that begins with [`DESCRIBED`]: what comes before it
/// belongs to the transaction before it.
const DESCRIBE: &str = "describe ip saddr\n";
const DESCRIBED: &str = "payload expression, datatype ipv4_addr";

/// `nft`, until dropped.
#[derive(Debug)]
pub struct Nft {
    /// `None`: it was killed.
    child: Option<Child>,
    /// Its input, written by a thread: one that does not read must not hold up its writer.
    input: Option<Sender<String>>,
    lines: Receiver<String>,
}

/// Why a transaction was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NftError {
    /// The program is not installed.
    #[error("it needs nft (apt-get install nftables)")]
    Missing,
    /// It was killed, and its tables are gone.
    #[error("nft did not answer within {} s and was killed", .0.as_secs())]
    Hangs(Duration),
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
        command.arg("-i");
        if let Some(netns) = netns {
            place(&mut command, netns)?;
        }
        Self::start_by(command)
    }

    fn start_by(mut command: Command) -> Result<Self, NftError> {
        // in a process group of its own, so that the terminal's signals do not reach it
        command.process_group(0);
        // errors and answers in one stream, so that they come in order
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NftError::Missing,
            _ => error.into(),
        })?;
        // with the command goes this program's end of the pipe
        drop(command);
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("no input"));
        let threads = stdin.and_then(|stdin| Ok((write_lines(stdin)?, read_lines(reader)?)));
        match threads {
            Ok((input, lines)) => Ok(Self { child: Some(child), input: Some(input), lines }),
            Err(error) => {
                reap(child);
                Err(error.into())
            }
        }
    }

    /// Carries out one transaction, all of it or nothing; line feeds end statements. It takes 20 s at most. Errors: nft's;
    /// after [`NftError::Hangs`] it runs no longer.
    pub fn run(&mut self, transaction: &str) -> Result<(), NftError> {
        self.run_within(PATIENCE, transaction)
    }

    /// The same for the last transaction, which takes 3 s at most.
    pub fn run_last(&mut self, transaction: &str) -> Result<(), NftError> {
        self.run_within(LAST_PATIENCE, transaction)
    }

    fn run_within(&mut self, patience: Duration, transaction: &str) -> Result<(), NftError> {
        let until = Instant::now() + patience;
        // it reads line by line, and a line is a transaction
        let line = transaction.trim_end().replace('\n', "; ");
        let input = self.input.as_ref().ok_or_else(ended)?;
        input.send(format!("{line}\n{DESCRIBE}")).map_err(|_| ended())?;
        let answer = self.answer(until);
        let Some(why) = answer? else {
            self.kill();
            return Err(NftError::Hangs(patience));
        };
        // an error is followed by the line and a row that points into it
        let mut errors = why.iter().filter_map(|line| line.strip_prefix("Error: "));
        match errors.next() {
            None if why.is_empty() => Ok(()),
            None => Err(NftError::Refused(why.join("; "))),
            Some(first) => Err(NftError::Refused(first.to_owned())),
        }
    }

    /// The lines of an answer; `None`: it did not come in time.
    fn answer(&self, until: Instant) -> Result<Option<Vec<String>>, NftError> {
        let mut why = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with(DESCRIBED) => return Ok(Some(why)),
                Ok(line) => why.push(line),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) if why.is_empty() => return Err(ended()),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(why)),
            }
        }
    }

    /// Whether it still runs; its tables are gone otherwise.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Ends it at once.
    fn kill(&mut self) {
        self.input = None;
        self.child.take().into_iter().for_each(reap);
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        // it ends with its input
        self.input = None;
        let until = Instant::now() + LAST_PATIENCE;
        let mut pause = Duration::from_micros(200);
        while self.is_running() {
            if Instant::now() >= until {
                return self.kill();
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

/// Kills it. The kernel may keep it within a call, so a thread waits for its end.
fn reap(mut child: Child) {
    let _ = child.kill();
    // without a thread it stays until this program ends, and its tables go with it all the same
    let _ = std::thread::Builder::new().name("nft-end".into()).spawn(move || child.wait());
}

fn ended() -> NftError {
    NftError::Refused("it ended".to_owned())
}

fn write_lines(mut stdin: ChildStdin) -> io::Result<Sender<String>> {
    let (sender, lines) = channel::<String>();
    let write = move || {
        for line in lines {
            if stdin.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("nft-in".into()).spawn(write)?;
    Ok(sender)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    /// A program in the place of nft, and its number.
    fn program(script: &str) -> (Nft, u32) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let nft = Nft::start_by(command).unwrap();
        let id = nft.child.as_ref().unwrap().id();
        (nft, id)
    }

    /// Waits until a process has ended and was waited for.
    fn is_gone(id: u32) {
        let entry = format!("/proc/{id}");
        while Path::new(&entry).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_its_late_answer_is_not_taken() {
        // it answers when the next transaction comes; no script starts another process, which would outlive it
        let late = format!("read -r a; read -r b; read -r c; echo '{DESCRIBED}'; read -r d");
        for script in ["exec sleep 1000", "kill -STOP $$", &late] {
            let (mut nft, id) = program(script);
            assert_eq!(nft.run_within(SHORT, "add table inet x"), Err(NftError::Hangs(SHORT)));
            assert!(!nft.is_running());
            assert_eq!(nft.run_within(LONG, "add table inet y"), Err(ended()), "{script}");
            is_gone(id);
        }
    }

    #[test]
    fn a_program_that_does_not_read_holds_nobody_up() {
        let (mut nft, id) = program("exec sleep 1000");
        let much = "#".repeat(1 << 20);
        assert_eq!(nft.run_within(SHORT, &much), Err(NftError::Hangs(SHORT)));
        is_gone(id);
    }

    #[test]
    fn answers_belong_to_their_transactions() {
        let script = format!(
            "while read -r line; do case \"$line\" in bad*) echo 'Error: bad';; describe*) echo '{DESCRIBED}';; end*) exit;; esac; done"
        );
        let (mut nft, id) = program(&script);
        for _ in 0..3 {
            assert_eq!(nft.run_within(LONG, "good"), Ok(()));
            let refused = Err(NftError::Refused("bad".to_owned()));
            assert_eq!(nft.run_within(LONG, "bad"), refused);
        }
        assert!(nft.is_running());
        assert!(matches!(nft.run_within(LONG, "end"), Err(NftError::Refused(_))));
        drop(nft);
        is_gone(id);
    }
}
