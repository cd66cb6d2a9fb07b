//! Ekiden, nginx and squid, each in front of an origin of its own, and the same bytes to each.

use super::recorder::{MARK, Received, Recorder};
use super::responses::{self, Script};
use ekiden_proxy::Server;
use ekiden_proxy::settings::{Route, Settings, Upstream, UpstreamProtocol};
use ekiden_testbed::peers::{Peer, PeerError, Start, nginx, squid};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const NAMES: [&str; 3] = ["ekiden", "nginx", "squid"];

/// How a program ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ended {
    /// By an error of its own.
    Refused,
    Closed,
    /// By a reset.
    #[default]
    Broken,
    /// Not at all: it waits for more.
    Waits,
}

/// How a program read a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) requests: Vec<Received>,
    pub(super) ended: Ended,
}

/// One way for bytes to each program; a worker has one for itself.
pub(super) struct Doors {
    ways: [(SocketAddr, Recorder); 3],
}

/// The programs, which end when this is dropped.
pub(super) struct Programs {
    pub(super) doors: Vec<Doors>,
    /// As each reports it.
    pub(super) versions: [String; 3],
    _peers: [Peer; 2],
    _servers: Vec<Server>,
}

impl Programs {
    /// With so many doors. Must be called within a runtime, where Ekiden runs. Errors: a program that is not
    /// installed, or does not start.
    pub(super) fn start(doors: usize) -> Result<Self, PeerError> {
        let failed = |error: io::Error| PeerError::Io("an origin".to_owned(), error);
        let recorders = || (0..doors).map(|_| Recorder::start()).collect::<Result<Vec<_>, _>>();
        let ours = recorders().map_err(failed)?;
        let (behind_nginx, behind_squid) =
            (recorders().map_err(failed)?, recorders().map_err(failed)?);
        let addresses =
            |recorders: &[Recorder]| recorders.iter().map(|r| r.address).collect::<Vec<_>>();
        let (nginx, at_nginx) = nginx::proxies(&Start::default(), &addresses(&behind_nginx))?;
        let (squid, at_squid) = squid::proxies(&Start::default(), &addresses(&behind_squid))?;
        let started =
            ours.iter().map(|recorder| Server::start(Arc::new(settings(recorder.address))));
        let servers = started.collect::<Result<Vec<_>, _>>();
        let servers = servers.map_err(|error| failed(io::Error::other(error.to_string())))?;
        let fronts: Vec<SocketAddr> =
            servers.iter().map(|server| server.status().listen[0]).collect();
        let ways = fronts.into_iter().zip(ours).zip(at_nginx.into_iter().zip(behind_nginx));
        let ways = ways.zip(at_squid.into_iter().zip(behind_squid));
        let doors = ways.map(|((ekiden, nginx), squid)| Doors { ways: [ekiden, nginx, squid] });
        Ok(Self {
            doors: doors.collect(),
            versions: [
                format!("ekiden {}", env!("CARGO_PKG_VERSION")),
                nginx.version.clone(),
                squid.version.clone(),
            ],
            _peers: [nginx, squid],
            _servers: servers,
        })
    }
}

/// All goes to one proxy, so that no name is resolved and nothing leaves loopback.
fn settings(origin: SocketAddr) -> Settings {
    let mut settings = Settings { listen: vec![([127, 0, 0, 1], 0).into()], ..Settings::default() };
    let upstream = Upstream::new(UpstreamProtocol::Http, origin.ip().to_string(), origin.port());
    settings.upstreams.insert("origin".to_owned(), upstream);
    settings.routes.push(Route {
        to: Vec::new(),
        through: vec![vec!["origin".to_owned()]],
        leg: "direct".to_owned(),
        client_leg: "client".to_owned(),
    });
    settings
}

impl Doors {
    /// The same bytes to each program, at once. A program that is silent for `quiet` is taken to wait. With a script
    /// the readings are the client's, of responses.
    pub(super) fn read(
        &self,
        bytes: &[u8],
        number: u64,
        script: Option<&Script>,
        quiet: Duration,
    ) -> [Reading; 3] {
        thread::scope(|scope| {
            let one = |way| scope.spawn(move || one(way, bytes, number, script, quiet));
            let reading = self.ways.each_ref().map(one);
            reading.map(|reading| {
                reading.join().unwrap_or(Reading { requests: Vec::new(), ended: Ended::Closed })
            })
        })
    }
}

fn one(
    (door, recorder): &(SocketAddr, Recorder),
    bytes: &[u8],
    number: u64,
    script: Option<&Script>,
    quiet: Duration,
) -> Reading {
    recorder.take();
    recorder.set_script(script);
    let (answer, ended) = talk(*door, recorder, bytes, quiet).unwrap_or_default();
    let mut requests = recorder.take();
    if script.is_some() {
        let requests = responses::read(&answer, ended == Ended::Closed, bytes.starts_with(b"HEAD"));
        // a program's own error, or an end in place of a response, is a refusal
        let ended = if ended == Ended::Waits { ended } else { Ended::Closed };
        return Reading { requests, ended };
    }
    // what came late of another case
    requests.retain(|request| of_case(&request.path).is_none_or(|case| case == number));
    let ended = if refused(&answer) { Ended::Refused } else { ended };
    Reading { requests, ended }
}

/// The case in a path `/CASE/…`.
fn of_case(path: &str) -> Option<u64> {
    path.strip_prefix('/')?.split_once('/')?.0.parse().ok()
}

/// What a program answers, and how it ends.
fn talk(
    door: SocketAddr,
    recorder: &Recorder,
    bytes: &[u8],
    quiet: Duration,
) -> io::Result<(Vec<u8>, Ended)> {
    let mut stream = TcpStream::connect(door)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(quiet))?;
    // one that has refused may read no more
    let _ = stream.write_all(bytes);
    let (mut answer, mut since, mut seen) = (Vec::new(), Instant::now(), 0);
    stream.set_read_timeout(Some((quiet / 8).max(Duration::from_millis(1))))?;
    loop {
        let mut some = [0; 16 * 1024];
        match stream.read(&mut some) {
            Ok(0) => return Ok((answer, Ended::Closed)),
            Ok(n) => {
                answer.extend(&some[..n]);
                since = Instant::now();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let now = recorder.seen();
                if now > seen {
                    (seen, since) = (now, Instant::now());
                }
                if since.elapsed() >= quiet {
                    return Ok((answer, Ended::Waits));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // a reset: no body ends so
            Err(_) => return Ok((answer, Ended::Broken)),
        }
    }
}

/// Whether an answer is the program's own.
fn refused(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let own = |at: usize| {
        let head = &text[at..];
        let head = head.split("\r\n\r\n").next().unwrap_or_default();
        !head.contains(MARK) && !head.contains(" 100 ")
    };
    // nginx answers requests of HTTP/0.9 without a head
    text.match_indices("HTTP/1.").any(|(at, _)| own(at))
        || (!text.is_empty() && !text.contains("HTTP/1."))
}
