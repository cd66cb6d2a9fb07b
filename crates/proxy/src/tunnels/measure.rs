//! How fast a tunnel is, by bytes of no meaning: `ekiden doctor --with RELAY`.
//!
//! A flow to [`NAME`] is answered by the far relay itself. Its port says what is asked for: 1 to 30 are seconds
//! of bytes from there, 101 to 130 seconds of bytes to there. Whoever receives counts, from a second after the
//! first byte on, so that what fills buffers in the beginning does not count.

use super::{Asked, Tunnels};
use crate::destination::{Destination, Host};
use crate::failure::{Failure, Kind};
use crate::incoming::{is_transient, write_all};
use crate::resources::Resources;
use ekiden_model::units::Span;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// No name of DNS (RFC 6761 §6.4): a relay that does not know it says that it cannot be resolved.
pub(crate) const NAME: &str = "measure.ekiden.invalid";
/// The most seconds a direction may be measured for.
pub(crate) const LONGEST: u16 = 30;
/// Added to the port where the far relay receives.
const UP: u16 = 100;
/// What does not count at the beginning.
const BEGINNING: Duration = Duration::from_secs(1);
/// How long opening the flow may take, and the count to come back.
const PATIENCE: Span = Span::from_secs(10);

/// What is asked for: seconds, and whether the far relay receives.
fn asked_for(port: u16) -> Option<(u16, bool)> {
    let (seconds, up) = if port > UP { (port - UP, true) } else { (port, false) };
    (1..=LONGEST).contains(&seconds).then_some((seconds, up))
}

/// Whether a flow is to be measured by, and how.
pub(crate) fn is_meant(to: &Destination) -> Option<(u16, bool)> {
    match &to.host {
        Host::Name(name) if name == NAME => asked_for(to.port),
        _ => None,
    }
}

/// The far relay's part, on its end of the flow.
pub(crate) async fn serve(stream: &TcpStream, (seconds, up): (u16, bool)) {
    let served = async {
        if up {
            let rate = count(stream, seconds).await?;
            write_all(stream, &rate.to_be_bytes()).await
        } else {
            pour(stream, seconds).await
        }
    };
    // who asked has what came
    let _ = tokio::time::timeout(longest(seconds), served).await;
}

fn longest(seconds: u16) -> Duration {
    Duration::from_secs(seconds.into()) + 2 * Duration::from(PATIENCE)
}

/// Reads away what comes, and answers with its rate in bits per second.
async fn count(stream: &TcpStream, seconds: u16) -> io::Result<u64> {
    let mut buffer = vec![0; 65_536];
    let (mut first, mut bytes) = (None::<Instant>, 0_u64);
    loop {
        stream.readable().await?;
        let n = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n as u64,
            Err(error) if is_transient(&error) => continue,
            Err(error) => return Err(error),
        };
        let since = first.get_or_insert_with(Instant::now).elapsed();
        if since >= BEGINNING {
            bytes += n;
        }
        let counted = since.saturating_sub(BEGINNING);
        if counted >= Duration::from_secs(seconds.into()) {
            return Ok((bytes as f64 * 8.0 / counted.as_secs_f64()) as u64);
        }
    }
}

/// Writes bytes until the other end has had enough; longer than it counts, since the way holds some.
async fn pour(stream: &TcpStream, seconds: u16) -> io::Result<()> {
    let (begin, zeros) = (Instant::now(), vec![0; 65_536]);
    while begin.elapsed() < Duration::from_secs(seconds.into()) + Duration::from(PATIENCE) {
        write_all(stream, &zeros).await?;
    }
    Ok(())
}

impl Tunnels {
    /// How fast bytes come through the tunnel to `relay`, or go, in bits per second of what flows carry.
    ///
    /// # Errors
    /// There is no tunnel, the far relay does not measure, or nothing came.
    pub(crate) async fn measure(
        &self,
        resources: &Arc<Resources>,
        relay: &str,
        seconds: u16,
        up: bool,
    ) -> Result<u64, Failure> {
        let name = Host::from_name(NAME);
        let host = name.map_err(|bad| Failure::new(Kind::NoName, bad.to_string()))?;
        let to = Destination { host, port: if up { UP + seconds } else { seconds } };
        let asked = Asked { to: &to, client: Ipv4Addr::LOCALHOST.into(), hops: 0, dscp: None };
        let dug = self.open(relay, asked, PATIENCE, true, resources.taken()).await?;
        let stream = &*dug.stream;
        let measuring = async {
            if up {
                tokio::select! {
                    poured = pour(stream, seconds) => {
                        poured?;
                        Err(io::ErrorKind::TimedOut.into())
                    }
                    told = told(stream) => told,
                }
            } else {
                count(stream, seconds).await
            }
        };
        let measured = tokio::time::timeout(longest(seconds), measuring).await;
        let measured = measured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        measured.map_err(|error| {
            let broke = || Failure::io(&format!("the tunnel to «{relay}»"), &error);
            dug.answer.failure().unwrap_or_else(broke)
        })
    }
}

/// What the far relay has counted.
async fn told(stream: &TcpStream) -> io::Result<u64> {
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
    fn a_port_says_what_is_asked_for() {
        assert_eq!(
            [1, 30, 101, 130].map(asked_for),
            [Some((1, false)), Some((30, false)), Some((1, true)), Some((30, true))]
        );
        assert_eq!([0, 31, 100, 131, 443].map(asked_for), [None; 5]);
    }

    #[tokio::test]
    async fn whoever_receives_counts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        let rate = tokio::select! {
            rate = count(&near, 1) => rate.unwrap(),
            () = serve(&far, (1, false)) => panic!("it was not counted in eleven seconds"),
        };
        assert!(rate > 1_000_000, "{rate}");
    }
}
