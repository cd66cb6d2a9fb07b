//! Screens of thin clients: scripts of writes by a [`FarServer`](crate::load::far_server::FarServer), and how
//! long each takes to arrive.

use super::pattern::Pattern;
use crate::load::far_client::{FarClient, check};
use crate::load::far_server::{LOOK, Shared, write};
use ekiden_model::network::workload::thin_client::Write;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What a server writes to those who ask for a number.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// For each number, in the order of time.
    pub writes: Arc<Vec<Vec<Write>>>,
    /// The time that scripts begin at; without it there are none.
    pub begin: Option<Instant>,
}

/// Makes the writes of a script at their times, however late the one before was.
pub(crate) fn screen(mut stream: TcpStream, nth: usize, shared: &Shared) -> io::Result<()> {
    let scripts = shared.scripts();
    let Some((writes, begin)) = scripts.writes.get(nth).zip(scripts.begin) else { return Ok(()) };
    let mut pattern = Pattern::default();
    let mut bytes = Vec::new();
    for one in writes {
        let due = begin + Duration::from_nanos(one.at.as_nanos());
        while let left @ 1.. = due.saturating_duration_since(Instant::now()).as_nanos() {
            if shared.is_over() {
                return Ok(());
            }
            thread::sleep(LOOK.min(Duration::from_nanos(left as u64)));
        }
        bytes.clear();
        while bytes.len() < one.bytes as usize {
            bytes.extend_from_slice(pattern.next(one.bytes as usize - bytes.len()));
        }
        if !write(&mut stream, &bytes, shared)? {
            break;
        }
    }
    Ok(())
}

impl FarClient {
    /// Reads the screen of this number, whose writes are these, until all have come or the time is over.
    /// Returns each arrived write's time from when it was due to its last byte. Errors: the connection broke,
    /// or a byte was wrong.
    pub fn screen(
        &self,
        nth: usize,
        writes: &[Write],
        begin: Instant,
    ) -> io::Result<Vec<Duration>> {
        let mut stream = self.begin(&format!("SCREEN {nth}"))?;
        let mut pattern = Pattern::default();
        let mut took = Vec::with_capacity(writes.len());
        let (mut came, mut whole) = (0_u64, 0_u64);
        if writes.is_empty() {
            return Ok(took);
        }
        self.each(&mut stream, "a screen", |piece| {
            let now = begin.elapsed();
            check(&mut pattern, piece)?;
            came += piece.len() as u64;
            while let Some(one) = writes.get(took.len())
                && whole + u64::from(one.bytes) <= came
            {
                whole += u64::from(one.bytes);
                took.push(now.saturating_sub(Duration::from_nanos(one.at.as_nanos())));
            }
            Ok(took.len() < writes.len())
        })?;
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::far_server::FarServer;
    use crate::load::meter::Meter;
    use ekiden_model::network::workload::flows::FlowKind;
    use ekiden_model::units::Time;

    #[test]
    fn each_write_comes_after_its_time() {
        let write = |at: u64, bytes| Write {
            at: Time::from_nanos(at * 1_000_000),
            bytes,
            kind: FlowKind::Interactive,
            flow: 0,
        };
        let writes = vec![write(10, 100), write(10, 1_460), write(60, 1), write(110, 70)];
        let begin = Instant::now();
        let scripts =
            Scripts { writes: Arc::new(vec![Vec::new(), writes.clone()]), begin: Some(begin) };
        let meter = Meter::new(begin, Duration::ZERO);
        let address = crate::peers::ports::free().unwrap();
        let _server = FarServer::serve(address, meter, scripts).unwrap();
        let end = begin + Duration::from_secs(20);
        let ask = FarClient { proxy: None, server: address, end };
        // none was early: a delay would have been cut to nothing
        let took = ask.screen(1, &writes, begin).unwrap();
        assert_eq!(took.len(), 4);
        assert!(took.iter().all(|took| !took.is_zero()), "{took:?}");
        // there is no such script
        let nothing = ask.screen(2, &writes, begin).unwrap_err();
        assert!(nothing.to_string().contains("before its end"), "{nothing}");
    }
}
