//! Cross traffic on the real kernel: datagrams at the model's times to a socket that nobody reads.

use crate::kernel::hosts::bind_udp;
use ekiden_emulator::topology::Host;
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::network::workload::stream::{Stream, StreamConfig};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HEADERS: u32 = 28;
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct CrossTraffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    begun: Instant,
    /// Full after some packets, and thrown into by all others: nobody answers.
    _sink: UdpSocket,
}

impl CrossTraffic {
    /// Sends IP packets of `bytes`; catches up when a timer fires late, so that the rate holds.
    pub(crate) fn start(
        from: &Host,
        to: &Host,
        stream: StreamConfig,
        bytes: u32,
    ) -> Result<Self, EngineError> {
        const SOCKETS: &str = "the jam's sockets";
        let (socket, sink) = (bind_udp(from).during(SOCKETS)?, bind_udp(to).during(SOCKETS)?);
        socket.connect(sink.local_addr().during(SOCKETS)?).during(SOCKETS)?;
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let payload = vec![0; bytes.saturating_sub(HEADERS) as usize];
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut stream = Stream::new(stream);
            while let Some(due) = stream.next_at() {
                let due = Duration::from(due);
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

    pub(crate) fn rate(&self) -> f64 {
        self.sent.load(Ordering::Relaxed) as f64 / self.begun.elapsed().as_secs_f64()
    }
}

impl Drop for CrossTraffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
