//! Which receive buffer makes a window of a given size.
//!
//! The kernel offers a share of the buffer as window, and finds that share from how much memory the
//! first packets take (Linux 6.7: `scaling_ratio`; before, `tcp_adv_win_scale`). So it is measured: a
//! transfer over the links that the window is wanted for, with a fixed buffer, until the sender has been
//! told the window.

use super::calibration::{host, two_hosts};
use crate::engine::EngineError;
use ekiden_linux::tcp_info::TcpInfo;
use ekiden_model::units::Rate;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

/// As of the links that windows matter on.
const RATE: Rate = Rate::from_bits_per_second(1_000_000_000);
/// Long enough for the window to open.
const LASTS: Duration = Duration::from_millis(1500);

/// The packets that a window is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packets {
    /// The largest, as an IP packet.
    pub(super) mtu: u32,
    /// As super-packets of many, or one by one.
    pub(super) together: bool,
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.together { "together" } else { "one by one" };
        write!(f, "packets of {} bytes {how}", self.mtu)
    }
}

/// A buffer and the window that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// For all three numbers of `tcp_rmem` but the first.
    pub(super) buffer: u64,
    /// Bytes, as measured.
    pub(super) effective: u64,
}

/// The buffer that makes a window of `wanted` bytes of such packets: tried at twice that, and set right by what
/// came, twice at most.
///
/// # Errors
/// The transfer failed.
pub(super) fn buffer_for(wanted: u64, packets: Packets) -> Result<Window, EngineError> {
    let mut buffer = wanted * 2;
    let mut effective = measure(buffer, packets)?;
    for _ in 0..2 {
        let off = effective.abs_diff(wanted) as f64 / wanted as f64;
        if effective == 0 || off < 0.01 {
            break;
        }
        buffer = (u128::from(buffer) * u128::from(wanted) / u128::from(effective)) as u64;
        effective = measure(buffer, packets)?;
    }
    Ok(Window { buffer, effective })
}

/// The largest window that a sender is offered by a receiver with this buffer.
fn measure(buffer: u64, packets: Packets) -> Result<u64, EngineError> {
    let rmem = ("net.ipv4.tcp_rmem".to_owned(), format!("4096 {buffer} {buffer}"));
    let topology = two_hosts(RATE, packets, &BTreeMap::from([rmem]))?;
    let (near, far) = (host(&topology, "near")?, host(&topology, "far")?);
    let failed = |error: io::Error| EngineError(format!("measuring a window: {error}"));
    let entered = |error: ekiden_emulator::topology::BuildError| EngineError(error.to_string());
    let address = SocketAddr::from((far.address(), 0));
    let listener = far.run(|| TcpListener::bind(address)).map_err(entered)?.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let receiver = near.run(|| TcpStream::connect(address)).map_err(entered)?.map_err(failed)?;
    let (sender, _) = listener.accept().map_err(failed)?;
    offered(receiver, sender).map_err(failed)
}

fn offered(mut receiver: TcpStream, mut sender: TcpStream) -> io::Result<u64> {
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut sink = vec![0; 1 << 17];
            while receiver.read(&mut sink).is_ok_and(|count| count > 0) {}
        });
        let most = send(&mut sender);
        sender.shutdown(Shutdown::Both)?; // or the receiver would wait for more
        most
    })
}

fn send(sender: &mut TcpStream) -> io::Result<u64> {
    let block = vec![0; 1 << 16];
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < LASTS {
        sender.write_all(&block)?;
        let info = TcpInfo::read(sender.as_fd())?;
        most = info.snd_wnd.map_or(0, u64::from).max(most);
    }
    Ok(most)
}
