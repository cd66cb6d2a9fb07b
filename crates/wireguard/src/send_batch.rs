//! Datagrams that leave together: those of one way and one size in a row go to the kernel as one.

use crate::engine::Way;
use ekiden_linux::sockets::datagram::{send, send_segments};
use std::io;
use std::net::UdpSocket;

/// Room for one more datagram, whatever its size.
const ROOM: usize = 66 << 10;
/// Bytes of one call: less than the longest datagram that the kernel takes (`UDP_SEGMENT`).
const MOST_BYTES: usize = 60_000;
/// Datagrams of one call: as many as the kernel takes.
const MOST: usize = 64;

/// The datagrams of one run: all as long as the first, but for the last, which may be shorter.
#[derive(Debug, Clone, Copy)]
struct Run {
    way: Way,
    size: usize,
    count: usize,
    is_closed: bool,
}

/// Datagrams that wait to be sent.
#[derive(Debug)]
pub(crate) struct SendBatch {
    bytes: Vec<u8>,
    used: usize,
    run: Option<Run>,
    /// Datagrams that the kernel did not take.
    pub(crate) lost: u64,
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; MOST_BYTES + ROOM], used: 0, run: None, lost: 0 }
    }

    /// Room for the next datagram.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.used..).unwrap_or_default()
    }

    /// Adds the datagram whose bytes stand in [`SendBatch::room`].
    pub(crate) fn add(&mut self, sockets: &[UdpSocket], way: Way, length: usize) {
        let fits = self.run.as_ref().is_some_and(|run| {
            run.way == way && !run.is_closed && length <= run.size && run.count < MOST
        });
        if !fits && self.run.is_some() {
            let at = self.used;
            self.flush(sockets);
            self.bytes.copy_within(at..at + length, 0);
        }
        self.used += length;
        let run = self.run.get_or_insert(Run { way, size: length, count: 0, is_closed: false });
        run.count += 1;
        run.is_closed = length < run.size;
        if self.used >= MOST_BYTES {
            self.flush(sockets);
        }
    }

    /// Hands all to the kernel.
    pub(crate) fn flush(&mut self, sockets: &[UdpSocket]) {
        let Some(run) = self.run.take() else { return };
        let bytes = self.bytes.get(..self.used).unwrap_or_default();
        self.used = 0;
        let Some(socket) = sockets.get(run.way.socket) else { return };
        let ends = (run.way.here, run.way.to);
        let together = match run.count {
            1 => send(socket, ends, bytes),
            _ => send_segments(socket, ends, bytes, run.size),
        };
        match together {
            Ok(()) => {}
            // a device that cannot, or a path with a smaller MTU: one by one they may be fragmented
            Err(error) if run.count > 1 && error.kind() != io::ErrorKind::WouldBlock => {
                for part in bytes.chunks(run.size.max(1)) {
                    self.lost += u64::from(send(socket, ends, part).is_err());
                }
            }
            // a full queue loses them, as any path may
            Err(_) => self.lost += run.count as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_linux::sockets::datagram::open;

    #[test]
    fn runs_arrive_as_they_were_added() {
        let sockets = [open("127.0.0.1:0".parse().unwrap()).unwrap()];
        let to = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        for socket in &to {
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        }
        let mut batch = SendBatch::new();
        let sizes = [(0, 1_400), (0, 1_400), (0, 900), (0, 1_400), (1, 32), (1, 33), (0, 1_400)];
        let mut add = |n: usize, (which, size): (usize, usize)| {
            let to: &UdpSocket = &to[which];
            let way = Way { socket: 0, to: to.local_addr().unwrap(), here: None };
            batch.room()[..size].fill(n as u8);
            batch.add(&sockets, way, size);
        };
        for (n, one) in sizes.into_iter().enumerate() {
            add(n, one);
        }
        for n in 0..60 {
            add(100 + n, (1, 1_452));
        }
        batch.flush(&sockets);
        let take = |which: usize| {
            let mut buffer = [0; 2_000];
            let length = to[which].recv(&mut buffer).unwrap();
            (length, buffer[0], buffer[..length].iter().all(|byte| *byte == buffer[0]))
        };
        for (n, size) in [(0, 1_400), (1, 1_400), (2, 900), (3, 1_400), (6, 1_400)] {
            assert_eq!(take(0), (size, n, true));
        }
        for (n, size) in [(4, 32), (5, 33)] {
            assert_eq!(take(1), (size, n, true));
        }
        for n in 0..60_u8 {
            assert_eq!(take(1), (1_452, 100_u8.wrapping_add(n), true));
        }
        assert_eq!(batch.lost, 0);
    }
}
