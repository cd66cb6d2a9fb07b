//! Questions in datagrams.

use super::{Client, Handled, Origin, handle, reply};
use crate::observe::log_throttle::LogThrottle;
use crate::runtime::RuntimeConfig;
use ekiden_linux::sockets::datagram;
use ekiden_linux::sockets::receive_batch::ReceiveBatch;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::coop::consume_budget;

/// Datagrams taken in with one call.
const AT_ONCE: usize = 16;

/// A port for questions.
#[derive(Debug)]
pub(crate) struct DnsPort {
    at: SocketAddr,
    socket: UdpSocket,
    /// The same socket, for calls that tokio does not know.
    plain: std::net::UdpSocket,
}

impl DnsPort {
    /// Errors: the address cannot be bound.
    pub(crate) fn bind(at: SocketAddr) -> io::Result<Self> {
        let plain = datagram::open(at)?;
        // a port of all addresses answers from the one that was asked
        datagram::report_destinations(&plain)?;
        let socket = UdpSocket::from_std(plain.try_clone()?)?;
        Ok(Self { at, socket, plain })
    }

    /// Answers until its task is aborted. `config`: the configuration in effect.
    pub(crate) async fn serve(self, config: impl Fn() -> Arc<RuntimeConfig>) {
        let port = Arc::new(self);
        let (mut batch, mut out) = (ReceiveBatch::default(), Vec::new());
        loop {
            // a port that always has datagrams must not keep other tasks from their turn
            consume_budget().await;
            if let Err(error) = port.socket.readable().await {
                return tracing::error!("the UDP port {} broke: {error}", port.at);
            }
            let taken =
                port.socket.try_io(Interest::READABLE, || batch.receive(&port.plain, AT_ONCE));
            // nothing there, or an ICMP error about an earlier reply
            if taken.is_err() {
                continue;
            }
            let config = config();
            let mut taken = 0;
            for datagram in batch.datagrams() {
                taken += 1;
                let ends = (datagram.here, datagram.from);
                port.answer(&config, datagram.bytes, ends, &mut out);
            }
            // a turn is bounded by datagrams, not by batches
            for _ in 0..taken {
                consume_budget().await;
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        config: &Arc<RuntimeConfig>,
        bytes: &[u8],
        ends: (Option<IpAddr>, SocketAddr),
        out: &mut Vec<u8>,
    ) {
        let client = ends.1.ip();
        let Some(from) = Client::admit(config, Origin::Udp(client)) else {
            config.shared.dns.counts.refused.fetch_add(1, Relaxed);
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!(%client, "a question at {} is not answered: no rule names this client; the status counts all", self.at);
            }
            return;
        };
        match handle(config, &from, bytes, out) {
            Handled::Reply => self.send(ends, out),
            Handled::Silence | Handled::Wait(_) => {}
            Handled::Later(asked, later) => {
                let (port, config) = (Arc::clone(self), Arc::clone(config));
                tokio::spawn(async move {
                    let outcome = later.await;
                    let mut out = Vec::new();
                    reply(&config, &from, &asked, &outcome, &mut out);
                    port.send(ends, &out);
                });
            }
        }
    }

    fn send(&self, ends: (Option<IpAddr>, SocketAddr), reply: &[u8]) {
        // a full queue loses it, as any path may; the client asks again
        let _ = datagram::send(&self.plain, ends, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn questions_without_end_leave_other_tasks_their_turn() {
        const MANY: usize = 100_000;
        let config = config(|_| {});
        let port = DnsPort::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(port.socket.local_addr().unwrap()).unwrap();
        client.send(b"?").unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let serving = tokio::spawn(port.serve(move || {
            // the next one is there before this one is looked at
            if count.fetch_add(1, Relaxed) < MANY {
                client.send(b"?").unwrap();
            }
            Arc::clone(&config)
        }));
        while taken.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let taken = taken.load(Relaxed);
        assert!(taken < MANY, "no turn before {taken} were taken");
        serving.abort();
    }

    #[tokio::test]
    async fn questions_that_came_together_leave_other_tasks_their_turn() {
        // more than the budget of a turn, in fewer batches than that
        const MANY: u64 = 200;
        let config = config(|_| {});
        let port = DnsPort::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(port.socket.local_addr().unwrap()).unwrap();
        for _ in 0..MANY {
            client.send(b"?").unwrap();
        }
        let in_effect = Arc::clone(&config);
        let serving = tokio::spawn(port.serve(move || Arc::clone(&in_effect)));
        let counts = &config.shared.dns.counts;
        let taken = || counts.udp.load(Relaxed) + counts.refused.load(Relaxed);
        while taken() == 0 {
            tokio::task::yield_now().await;
        }
        let taken = taken();
        assert!(taken < MANY, "no turn before {taken} were taken");
        serving.abort();
    }
}
