//! The throughput of a tunnel, measured with meaningless bytes: `ekiden doctor --with PEER`, and the speed test of the
//! page for users, whose bytes are few and count against an account.
//!
//! The peer answers a flow to [`NAME`]. Ports 1 to 30 mean seconds of bytes from the peer, 101 to
//! 130 of bytes to it. The receiver counts from one second after the first byte, so that bytes that
//! fill buffers at the start do not count.

use super::{FlowOwner, FlowRequest, Tunnels};
use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::policy::quota::AccountConnection;
use crate::transfer::buffered::write_all;
use crate::transfer::end::End;
use crate::transfer::transient::is_transient;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Not a DNS name (RFC 6761 §6.4): a peer that does not know it reports that it cannot be resolved.
pub(crate) const NAME: &str = "measure.ekiden.invalid";
/// The longest measurement of a direction, in seconds.
pub(crate) const LONGEST: u16 = 30;
/// Added to the port when the peer receives.
const UP: u16 = 100;
/// The time at the beginning that does not count.
const BEGINNING: Duration = Duration::from_secs(1);
/// The time-outs for the tunnel, for the peer's answer, and for the result.
const PATIENCE: Span = Span::from_secs(10);

/// The duration in seconds, and whether the peer receives.
fn asked_for(port: u16) -> Option<(u16, bool)> {
    let (seconds, up) = if port > UP { (port - UP, true) } else { (port, false) };
    (1..=LONGEST).contains(&seconds).then_some((seconds, up))
}

/// The measurement that a destination stands for, if any.
pub(crate) fn is_meant(to: &Destination) -> Option<(u16, bool)> {
    match &to.host {
        Host::Name(name) if name == NAME => asked_for(to.port),
        _ => None,
    }
}

/// An account, and in which direction the bytes count against it.
type Metered<'a> = Option<(&'a AccountConnection, Direction)>;

/// Answers a peer. The bytes count against `share`, the account behind the peer, as those of its other flows.
pub(crate) async fn serve(
    stream: &End,
    (seconds, up): (u16, bool),
    share: Option<&AccountConnection>,
) {
    let served = async {
        if up {
            let share = share.map(|share| (share, Direction::Up));
            let rate = count(stream, (seconds, u64::MAX), share).await?;
            write_all(stream, &rate.to_be_bytes()).await
        } else {
            let share = share.map(|share| (share, Direction::Down));
            pour(stream, (seconds, u64::MAX), share).await.map(drop)
        }
    };
    // on a time-out, the asking side has its result already
    let _ = tokio::time::timeout(longest(seconds), served).await;
}

fn longest(seconds: u16) -> Duration {
    Duration::from_secs(seconds.into()) + 2 * Duration::from(PATIENCE)
}

/// `limit`: seconds that are counted, and bytes. Where those come first, the rate is that of all of them.
async fn count(stream: &End, (seconds, most): (u16, u64), share: Metered<'_>) -> io::Result<u64> {
    let mut buffer = vec![0; 65_536];
    let (mut first, mut bytes, mut all) = (None::<Instant>, 0_u64, 0_u64);
    loop {
        stream.readable().await?;
        let n = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n as u64,
            Err(error) if is_transient(&error) => continue,
            Err(error) => return Err(error),
        };
        if let Some((share, direction)) = share {
            share.pass(direction, n as usize).await?;
        }
        all += n;
        let since = first.get_or_insert_with(Instant::now).elapsed();
        if all >= most {
            return Ok(rate(all, since));
        }
        if since >= BEGINNING {
            bytes += n;
        }
        let counted = since.saturating_sub(BEGINNING);
        if counted >= Duration::from_secs(seconds.into()) {
            return Ok(rate(bytes, counted));
        }
    }
}

fn rate(bytes: u64, took: Duration) -> u64 {
    (bytes as f64 * 8.0 / took.as_secs_f64().max(0.001)) as u64
}

/// Writes until the receiver closes, for longer than it counts, because buffers delay the count; or until `most` bytes
/// are written, and then returns their rate.
async fn pour(
    stream: &End,
    (seconds, most): (u16, u64),
    share: Metered<'_>,
) -> io::Result<Option<u64>> {
    let (begin, zeros, mut left) = (Instant::now(), vec![0; 65_536], most);
    while begin.elapsed() < Duration::from_secs(seconds.into()) + Duration::from(PATIENCE) {
        if let Some((share, direction)) = share {
            share.pass(direction, zeros.len()).await?;
        }
        write_all(stream, &zeros).await?;
        left = left.saturating_sub(zeros.len() as u64);
        if left == 0 {
            return Ok(Some(rate(most, begin.elapsed())));
        }
    }
    Ok(None)
}

impl Tunnels {
    /// Measures the throughput from `peer`, or to it, in payload bits per second. Fails without a
    /// tunnel, a peer that measures, or bytes. `seconds` are counted, but at most `most` bytes; they count against `share`.
    pub(crate) async fn measure(
        &self,
        peer: &str,
        (seconds, most): (u16, u64),
        up: bool,
        share: Option<&AccountConnection>,
    ) -> Result<u64, Failure> {
        let name = Host::from_name(NAME);
        let host = name.map_err(|bad| Failure::new(FailureKind::NoName, bad.to_string()))?;
        let to = Destination { host, port: if up { UP + seconds } else { seconds } };
        let (client, owner) = (Ipv4Addr::LOCALHOST.into(), FlowOwner::OWN);
        let asked = FlowRequest { to: &to, client, owner, hops: 0, dscp: None };
        let dug = self.open(peer, asked, PATIENCE, Some(PATIENCE)).await?;
        let stream = &dug.stream;
        let metered = |direction| share.map(|share| (share, direction));
        let measuring = async {
            if up {
                tokio::select! {
                    poured = pour(stream, (seconds, most), metered(Direction::Up)) => {
                        poured?.ok_or_else(|| io::ErrorKind::TimedOut.into())
                    }
                    rate = read_rate(stream) => rate,
                }
            } else {
                count(stream, (seconds, most), metered(Direction::Down)).await
            }
        };
        let measured = tokio::time::timeout(longest(seconds), measuring).await;
        let measured = measured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        measured.map_err(|error| {
            let broke = || Failure::io(&format!("the tunnel to \"{peer}\""), &error);
            dug.answer.failure().unwrap_or_else(broke)
        })
    }
}

async fn read_rate(stream: &End) -> io::Result<u64> {
    let (mut rate, mut have) = ([0; 8], 0);
    while have < rate.len() {
        stream.readable().await?;
        match stream.try_read(&mut rate[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(u64::from_be_bytes(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_encodes_the_measurement() {
        assert_eq!(
            [1, 30, 101, 130].map(asked_for),
            [Some((1, false)), Some((30, false)), Some((1, true)), Some((30, true))]
        );
        assert_eq!([0, 31, 100, 131, 443].map(asked_for), [None; 5]);
    }

    #[tokio::test]
    async fn the_receiver_counts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, far) = (End::from(near), End::from(listener.accept().await.unwrap().0));
        let rate = tokio::select! {
            rate = count(&near, (1, u64::MAX), None) => rate.unwrap(),
            () = serve(&far, (1, false), None) => panic!("it was not counted in eleven seconds"),
        };
        assert!(rate > 0);
    }
}
