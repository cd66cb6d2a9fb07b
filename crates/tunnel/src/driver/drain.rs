//! Waiting until a socket's bytes are acknowledged.

use ekiden_linux::sockets::socket;
use ekiden_linux::sockets::tcp_info::{TcpInfo, TcpState};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// After a break, how long a connection may go without progress to accept the bytes that came before.
pub const DRAIN_WITHOUT_PROGRESS: Duration = Duration::from_secs(10);

/// Waits until the peer has acknowledged every byte, is gone, or makes no progress for
/// [`DRAIN_WITHOUT_PROGRESS`]. An abort would discard unsent bytes.
pub async fn wait_until_sent(stream: &TcpStream) {
    let mut before = u32::MAX;
    let mut last_progress = Instant::now();
    let mut pause = Duration::from_micros(200);
    while let Ok(waiting) = socket::unacknowledged(stream.as_fd()) {
        if waiting == 0 {
            return;
        }
        if waiting < before {
            before = waiting;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > DRAIN_WITHOUT_PROGRESS || is_gone(stream) {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Whether the connection was reset: bytes in its queue go nowhere.
fn is_gone(stream: &TcpStream) -> bool {
    TcpInfo::read(stream.as_fd()).is_ok_and(|info| info.state == TcpState::Close)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::Interest;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn does_not_wait_for_a_reset_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (near, (far, _)) = (near.unwrap(), far.unwrap());
        near.writable().await.unwrap();
        while near.try_write(&[0; 1 << 16]).is_ok() {}
        // an aborted socket sends a reset when it closes
        socket::abort(far.as_fd()).unwrap();
        drop(far);
        near.ready(Interest::ERROR).await.unwrap();
        let waited = tokio::time::timeout(DRAIN_WITHOUT_PROGRESS / 2, wait_until_sent(&near));
        assert!(waited.await.is_ok(), "waits for bytes that can never be sent");
    }
}
