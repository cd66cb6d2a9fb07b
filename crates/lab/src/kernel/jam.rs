//! Cross traffic on the real kernel: datagrams from one host to another at the times that the model's
//! stream says, to a socket that nobody reads.

use crate::engine::EngineError;
use ekiden_emulator::topology::Host;
use ekiden_model::workload::stream::{Stream, StreamConfig};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// IP and UDP headers.
const HEADERS: u32 = 28;
/// The thread looks at least this often whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A stream that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Jam {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    begun: Instant,
    /// Full after some packets, and thrown into by all others: nobody answers.
    _sink: UdpSocket,
}

impl Jam {
    /// Begins: IP packets of `bytes` from one host to the other. What a timer was late for is sent at
    /// once when it fires, so that the rate holds.
    ///
    /// # Errors
    /// No sockets.
    pub(super) fn start(
        from: &Host,
        to: &Host,
        stream: StreamConfig,
        bytes: u32,
    ) -> Result<Self, EngineError> {
        let failed = |error: io::Error| EngineError(format!("the jam's sockets: {error}"));
        let bind = |host: &Host| -> Result<UdpSocket, EngineError> {
            let address = SocketAddr::from((host.address(), 0));
            let bound = host.run(|| UdpSocket::bind(address));
            bound.map_err(|error| EngineError(error.to_string()))?.map_err(failed)
        };
        let (socket, sink) = (bind(from)?, bind(to)?);
        socket.connect(sink.local_addr().map_err(failed)?).map_err(failed)?;
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let payload = vec![0; bytes.saturating_sub(HEADERS) as usize];
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut stream = Stream::new(stream);
            while let Some(due) = stream.next_at() {
                let due = Duration::from_nanos(due.as_nanos());
                while let Some(left) = due.checked_sub(begun.elapsed()).filter(|l| !l.is_zero()) {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(left.min(LOOK));
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // a device that is full drops it, as a link would; what was never sent is no jam
                if socket.send(&payload).is_ok() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { stop, sent, thread: Some(thread), begun, _sink: sink })
    }

    /// Packets a second that were sent so far.
    pub(super) fn rate(&self) -> f64 {
        self.sent.load(Ordering::Relaxed) as f64 / self.begun.elapsed().as_secs_f64()
    }
}

impl Drop for Jam {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
