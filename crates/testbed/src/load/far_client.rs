//! The client of a [`FarServer`](crate::load::far_server::FarServer), directly or through a relay: bulk,
//! echoes, documents, played streams. Every byte is compared with what was sent.

use super::blocking::shake;
use super::fetch::{read_head, request};
use super::handshake::{Handshake, Method};
use super::meter::Meter;
use super::pattern::Pattern;
use crate::load::far_server::{LOOK, PLAYED, interval, is_wait};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A read takes at most so much.
const PIECE: usize = 256 << 10;
/// Of an echo, there and back.
const ECHO: usize = 64;
/// Echoes that are on their way when sending ends are waited for so long.
const GRACE: Duration = Duration::from_secs(3);

/// The way to a server.
#[derive(Debug, Clone, Copy)]
pub struct FarClient {
    /// Speaks SOCKS5 and HTTP; `None`: the server itself.
    pub proxy: Option<SocketAddr>,
    /// The server.
    pub server: SocketAddr,
    /// Nothing waits longer.
    pub end: Instant,
}

/// What became of one echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echoed {
    /// When it was sent, since the beginning.
    pub sent: Duration,
    /// How long it took; of one that never came, how long it was waited for.
    pub took: Duration,
    /// Whether it came.
    pub came: bool,
}

/// A document that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// When the first byte of the answer came.
    pub first: Instant,
    /// And the last.
    pub last: Instant,
}

impl FarClient {
    /// A connection to the server, through the proxy by SOCKS5. Errors: the socket's, the proxy's refusal, or
    /// the end of time.
    pub fn dial(&self) -> io::Result<TcpStream> {
        let mut stream = self.connect(self.proxy.unwrap_or(self.server))?;
        if self.proxy.is_some() {
            let handshake = Handshake::new(Method::Socks5, self.server.into());
            // the server speaks when it is asked: nothing comes early
            shake(&mut stream, handshake, |stream, piece| self.read(stream, piece))?;
        }
        Ok(stream)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let stream = TcpStream::connect_timeout(&to, left)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(stream)
    }

    /// What came, or [`ErrorKind::TimedOut`] at the end of time.
    pub(crate) fn read(&self, stream: &mut TcpStream, piece: &mut [u8]) -> io::Result<usize> {
        while Instant::now() < self.end {
            match stream.read(piece) {
                Err(error) if is_wait(&error) => {}
                other => return other,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Gives `take` what comes until it returns false or the time is over. Errors: the connection broke, or
    /// `take`'s.
    pub(crate) fn each(
        &self,
        stream: &mut TcpStream,
        what: &str,
        mut take: impl FnMut(&[u8]) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            match self.read(stream, &mut piece) {
                Ok(0) => return Err(ended(&format!("the server ended {what} before its end"))),
                Ok(count) if take(&piece[..count])? => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn begin(&self, line: &str) -> io::Result<TcpStream> {
        let mut stream = self.dial()?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        Ok(stream)
    }

    /// Takes bytes without end until the time is over. `congestion` is what the server's TCP is to be. Errors:
    /// the connection broke, or a byte was wrong.
    pub fn download(&self, congestion: Option<&str>, meter: &Meter) -> io::Result<()> {
        let line = congestion.map_or("POUR".to_owned(), |name| format!("POUR {name}"));
        let mut stream = self.begin(&line)?;
        let mut pattern = Pattern::default();
        self.each(&mut stream, "an endless download", |came| {
            meter.add(came.len() as u64);
            check(&mut pattern, came).map(|()| true)
        })
    }

    /// Gives bytes without end until the time is over. Errors: the connection broke.
    pub fn upload(&self) -> io::Result<()> {
        let mut stream = self.begin("TAKE")?;
        let mut pattern = Pattern::default();
        while Instant::now() < self.end {
            let mut bytes = pattern.next(PIECE);
            while !bytes.is_empty() && Instant::now() < self.end {
                match stream.write(bytes) {
                    Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                    Err(error) if is_wait(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends 64 bytes every so often from `begin` on and listens for their echoes. Errors: the connection
    /// broke, or what came is no echo.
    pub fn echoes(&self, every: Duration, begin: Instant) -> io::Result<Vec<Echoed>> {
        let mut stream = self.begin("ECHO")?;
        let (mut writer, last) = (stream.try_clone()?, self.end);
        let sender = thread::spawn(move || -> io::Result<Vec<Instant>> {
            let mut sent = Vec::new();
            let mut due = begin.max(Instant::now());
            while due < last {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let number = (sent.len() as u64).to_be_bytes();
                sent.push(Instant::now());
                let echo = number.repeat(ECHO / number.len());
                // so little is taken whole or not at all
                while let Err(error) = writer.write_all(&echo) {
                    if !is_wait(&error) || Instant::now() > last {
                        return Err(error);
                    }
                }
                due += every;
            }
            Ok(sent)
        });
        let patience = self.end + GRACE;
        let mut came: Vec<Instant> = Vec::new();
        let (mut held, mut piece) = (Vec::new(), [0; 4 << 10]);
        let mut sender = Some(sender);
        let mut sent = Vec::new();
        while sender.is_some() || (came.len() < sent.len() && Instant::now() < patience) {
            if let Some(done) = sender.take_if(|sender| sender.is_finished()) {
                sent = done.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))?;
            }
            let count = match stream.read(&mut piece) {
                Ok(0) => return Err(ended("the server closed the connection of the echoes")),
                Ok(count) => count,
                Err(error) if is_wait(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            held.extend_from_slice(piece.get(..count).unwrap_or_default());
            while held.len() >= ECHO {
                let rest = held.split_off(ECHO);
                let number = (came.len() as u64).to_be_bytes();
                if held != number.repeat(ECHO / number.len()) {
                    return wrong(format!("echo {} differs from what was sent", came.len()));
                }
                came.push(now);
                held = rest;
            }
        }
        let one = |(number, at): (usize, &Instant)| {
            let back = came.get(number).copied();
            Echoed {
                sent: at.saturating_duration_since(begin),
                took: back.unwrap_or(patience).saturating_duration_since(*at),
                came: back.is_some(),
            }
        };
        Ok(sent.iter().enumerate().map(one).collect())
    }

    /// When each packet of a stream that is played at `rate` bits per second came whole, since `begin`. Errors:
    /// the connection broke, or a byte was wrong.
    pub fn play(&self, rate: u64, begin: Instant) -> io::Result<Vec<Duration>> {
        let mut stream = self.begin(&format!("PLAY {rate}"))?;
        let mut pattern = Pattern::default();
        let (mut came, mut held) = (Vec::new(), Vec::new());
        self.each(&mut stream, "an endless stream", |piece| {
            let now = begin.elapsed();
            held.extend_from_slice(piece);
            while held.len() >= PLAYED {
                let rest = held.split_off(PLAYED);
                let (number, payload) = held.split_at(size_of::<u64>());
                if number != (came.len() as u64).to_be_bytes() {
                    return wrong(format!(
                        "packet {} of the stream has another number",
                        came.len()
                    ));
                }
                check(&mut pattern, payload)?;
                came.push(now);
                held = rest;
            }
            Ok(true)
        })?;
        Ok(came)
    }

    /// A connection that documents can be asked for on: to the proxy, or to the server. Errors: the socket's,
    /// or the end of time.
    pub fn door(&self) -> io::Result<TcpStream> {
        self.connect(self.proxy.unwrap_or(self.server))
    }

    /// Asks for a document of so many bytes on such a connection, by HTTP with the whole URL. Errors: it broke,
    /// was answered by something else, or a byte was wrong.
    pub fn get(&self, stream: &mut TcpStream, length: u64) -> io::Result<Got> {
        stream.write_all(request(self.server, length).as_bytes())?;
        let mut rest = Vec::new();
        let head = loop {
            match read_head(stream, &mut rest) {
                Ok(Some(head)) => break head,
                Ok(None) => return Err(ended("the connection was closed before an answer came")),
                Err(error) if is_wait(&error) && Instant::now() < self.end => {}
                Err(error) => return Err(error),
            }
        };
        let first = Instant::now();
        if head.status() != 200 || head.content_length() != Some(length) {
            let answer = head.first();
            return wrong(format!("asked for {length} bytes, but the answer is `{answer}`"));
        }
        let mut pattern = Pattern::default();
        check(&mut pattern, &rest)?;
        let mut came = rest.len() as u64;
        if came < length {
            self.each(stream, "a document", |piece| {
                came += piece.len() as u64;
                check(&mut pattern, piece).map(|()| came < length)
            })?;
        }
        let got = Got { first, last: Instant::now() };
        if came < length { Err(ErrorKind::TimedOut.into()) } else { Ok(got) }
    }
}

pub(crate) fn check(pattern: &mut Pattern, bytes: &[u8]) -> io::Result<()> {
    pattern.check(bytes).or_else(|at| wrong(format!("received byte {at} is wrong")))
}

fn wrong<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, what))
}

pub(crate) fn ended(what: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, what)
}

/// Where nothing came although the next packet of a stream was due (algorithms/satellite E.8).
#[derive(Debug, Clone, PartialEq)]
pub struct Stalls {
    /// How long the stream was looked at.
    pub looked: Duration,
    /// Each gap of more than two packets' time.
    pub gaps: Vec<Duration>,
    /// Share of the time that was spent in such gaps, beyond the time that one packet takes, 0 … 1.
    pub blocked: f64,
}

impl Stalls {
    /// Of a stream's packets at `rate` bit/s that came at these times, from `from` to `to`, the end without
    /// packets included.
    pub fn of(came: &[Duration], rate: u64, (from, to): (Duration, Duration)) -> Self {
        let apart = interval(rate);
        let within = came.iter().copied().filter(|at| (from..to).contains(at));
        let ends: Vec<Duration> = [from].into_iter().chain(within).chain([to]).collect();
        let gaps = ends.iter().zip(&ends[1..]).map(|(a, b)| b.saturating_sub(*a));
        let gaps: Vec<Duration> = gaps.filter(|gap| *gap > 2 * apart).collect();
        let looked = to.saturating_sub(from);
        let lost: Duration = gaps.iter().map(|gap| gap.saturating_sub(apart)).sum();
        let blocked = lost.as_secs_f64() / looked.as_secs_f64().max(f64::MIN_POSITIVE);
        Self { looked, gaps, blocked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::far_server::FarServer;
    use crate::load::servers;
    use crate::load::thin_clients::Scripts;

    fn served(lasts: Duration) -> (FarServer, FarClient) {
        let address = crate::peers::ports::free().unwrap();
        let meter = Meter::new(Instant::now(), lasts);
        let server = FarServer::serve(address, meter, Scripts::default()).unwrap();
        (server, FarClient { proxy: None, server: address, end: Instant::now() + lasts })
    }

    #[test]
    fn bytes_go_both_ways_and_are_counted() {
        let lasts = Duration::from_millis(400);
        let (server, ask) = served(lasts);
        let meter = Meter::new(Instant::now(), lasts);
        ask.download(None, &meter).unwrap();
        assert!(meter.between(Duration::ZERO, lasts) > 0);
        let (server_of_upload, ask) = served(lasts);
        ask.upload().unwrap();
        assert!(server_of_upload.taken().between(Duration::ZERO, 2 * lasts) > 0);
        assert_eq!((server.wrong(), server_of_upload.wrong()), (0, 0));
    }

    #[test]
    fn documents_come_one_after_the_other() {
        let (_server, ask) = served(Duration::from_secs(10));
        let mut stream = ask.door().unwrap();
        for length in [1, 2_000_000, 0, 5] {
            let asked = Instant::now();
            let got = ask.get(&mut stream, length).unwrap();
            assert!(asked < got.first && got.first <= got.last);
        }
    }

    #[test]
    fn echoes_and_packets_come_in_order() {
        let (_server, ask) = served(Duration::from_secs(1));
        let begin = Instant::now();
        let echoes = ask.echoes(Duration::from_millis(100), begin).unwrap();
        assert!(!echoes.is_empty() && echoes.iter().all(|echo| echo.came));
        let (_server, ask) = served(Duration::from_secs(1));
        let came = ask.play(1_000_000, Instant::now()).unwrap();
        assert!(!came.is_empty() && came.is_sorted());
    }

    #[test]
    fn refuses_wrong_bytes() {
        let liar = servers::serve(|mut stream| {
            let _line = stream.read(&mut [0; 64]);
            stream.write_all(&[b'.'; 1_000])
        });
        let end = Instant::now() + Duration::from_secs(5);
        let ask = FarClient { proxy: None, server: liar.unwrap().address, end };
        let meter = Meter::new(Instant::now(), Duration::from_secs(5));
        let report = ask.download(None, &meter).unwrap_err();
        assert!(report.to_string().contains("is wrong"), "{report}");
    }

    /// A packet every 10 ms, and nothing from 1,000 to 1,600 ms: a gap of 610 ms, 600 too long.
    #[test]
    fn gap_is_a_stall_but_a_late_packet_is_not() {
        let rate = (PLAYED as u64) * 8 * 100;
        let ms = Duration::from_millis;
        let mut came: Vec<Duration> = (0..100).map(|n| ms(10 * n)).collect();
        came.extend([ms(1_600); 61]);
        came.extend((161..200).map(|n| ms(10 * n)));
        let stalls = Stalls::of(&came, rate, (ms(0), ms(2_000)));
        assert_eq!(stalls.gaps, [ms(610)]);
        assert!((stalls.blocked - 0.3).abs() < 1e-9, "{}", stalls.blocked);
        came[50] += ms(5);
        assert_eq!(Stalls::of(&came, rate, (ms(0), ms(2_000))).gaps.len(), 1);
        // a stream that died is blocked to the end
        assert!(Stalls::of(&came[..100], rate, (ms(0), ms(2_000))).blocked > 0.49);
        assert!((Stalls::of(&[], rate, (ms(0), ms(2_000))).blocked - 0.995).abs() < 1e-9);
    }
}
