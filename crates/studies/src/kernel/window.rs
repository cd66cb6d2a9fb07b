//! Which receive buffer makes a window of a given size. It is measured by a transfer with a fixed buffer,
//! because the kernel derives the share of the buffer that it offers from the memory that the first packets
//! take (Linux 6.7: `scaling_ratio`; before, `tcp_adv_win_scale`).

use super::calibration::two_hosts;
use super::hosts::host;
use ekiden_lab::engine::{During, EngineError};
use ekiden_lab::study::{Packets, Window};
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::units::Rate;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

/// As of the links that windows matter on.
const RATE: Rate = Rate::from_bits_per_second(1_000_000_000);
/// Long enough for the window to open.
const LASTS: Duration = Duration::from_millis(1500);

/// The buffer that makes a window of `wanted` bytes of such packets: twice that first, corrected twice at most.
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
    const MEASURING: &str = "measuring a window";
    let address = SocketAddr::from((far.address(), 0));
    let listener = far.run(|| TcpListener::bind(address))?.during(MEASURING)?;
    let address = listener.local_addr().during(MEASURING)?;
    let receiver = near.run(|| TcpStream::connect(address))?.during(MEASURING)?;
    let (sender, _) = listener.accept().during(MEASURING)?;
    offered(receiver, sender).during(MEASURING)
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
