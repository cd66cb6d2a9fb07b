//! A page's model: objects with a size, a host and a parent. A host's TLS takes one round trip on its first connection,
//! which then answers one request after the other. As browsers do, it opens more while it does not know that the host
//! speaks HTTP/2; those are not used.

use crate::long_link::tunnel_pair::{Asked, FAR, NEAR, Pair};
use crate::pages::outcome::Fetched;
use crate::pages::page::Page;
use ekiden_lab::engine::EngineError;
use ekiden_model::units::Time;
use ekiden_tunnel::core::FlowId;
use std::collections::BTreeMap;

/// A page has fewer; so many numbers are its own.
pub(super) const CONNECTIONS: usize = 64;
/// Connections to a host that is not known yet, for as many requests (Chromium's and others' limit of HTTP/1.1).
const AT_ONCE: usize = 6;
/// Bytes of a ClientHello: a browser's has a key share of ML-KEM.
pub(super) const BROWSER_HELLO: u64 = 1_950;
pub(super) const PLAIN_HELLO: u64 = 517;
/// Bytes of a server's flight with a small certificate, of a client's end of TLS, of a request and of an answer's head
/// by HTTP/2, about.
const FLIGHT: u64 = 1_000;
const FINISHED: u64 = 150;
const REQUEST: u64 = 150;
const HEAD: u64 = 200;

struct Connection {
    number: usize,
    /// Bytes of its ClientHello.
    hello: u64,
    near: FlowId,
    /// Objects in the order of their requests.
    asked: Vec<usize>,
    /// Of those, the ones that came whole.
    whole: usize,
    /// Bytes that came to the near end, and those of its TLS and of objects that came whole.
    came: u64,
    counted: u64,
    tls: Option<Time>,
    /// Bytes that came to the far end, what it is still to write, and requests that it took up.
    heard: u64,
    owed: u64,
    answered: usize,
}

/// A page on its way.
pub(super) struct Visit<'p> {
    page: &'p Page,
    begin: Time,
    /// By host.
    connections: BTreeMap<usize, Connection>,
    /// Those that are not used.
    spare: Vec<Connection>,
    times: Vec<Times>,
    left: usize,
    first: usize,
    hello: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    wanted: Option<Time>,
    asked: Option<Time>,
    first: Option<Time>,
    last: Option<Time>,
}

/// A page that came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Visited {
    pub(super) objects: Vec<Fetched>,
    /// Seconds until the TLS of the first connection was done.
    pub(super) tls: f64,
}

impl<'p> Visit<'p> {
    /// Asks for the document. `first` is the number of the first connection, whose ClientHello has so many bytes. Errors: there is no tunnel.
    pub(super) fn begin(
        page: &'p Page,
        pair: &mut Pair,
        (first, hello): (usize, u64),
    ) -> Result<Self, EngineError> {
        let times = vec![Times::default(); page.objects.len()];
        let (connections, spare) = (BTreeMap::new(), Vec::new());
        let (begin, left) = (pair.now, page.objects.len());
        let mut this = Self { page, begin, connections, spare, times, left, first, hello };
        this.want(pair, 0)?;
        Ok(this)
    }

    pub(super) const fn is_done(&self) -> bool {
        self.left == 0
    }

    fn want(&mut self, pair: &mut Pair, number: usize) -> Result<(), EngineError> {
        let Some(object) = self.page.objects.get(number) else { return Ok(()) };
        if let Some(times) = self.times.get_mut(number) {
            times.wanted = Some(pair.now);
        }
        if let Some(connection) = self.connections.get_mut(&object.host) {
            connection.asked.push(number);
            if connection.tls.is_some() {
                connection.request(pair, number, &mut self.times);
            } else if connection.asked.len() <= AT_ONCE {
                let spare = self.open(pair)?;
                self.spare.push(spare);
            }
            return Ok(());
        }
        let mut connection = self.open(pair)?;
        connection.asked.push(number);
        self.connections.insert(object.host, connection);
        Ok(())
    }

    fn open(&self, pair: &mut Pair) -> Result<Connection, EngineError> {
        let own = self.first + self.connections.len() + self.spare.len();
        Connection::open(pair, own, self.hello)
    }

    /// Does what both ends do at this instant. Errors: there is no tunnel.
    pub(super) fn go_on(&mut self, pair: &mut Pair) -> Result<(), EngineError> {
        let scripts = pair.scripts();
        let mut whole = Vec::new();
        for connection in self.connections.values_mut().chain(&mut self.spare) {
            if let Some(far) = scripts.get(&connection.number) {
                connection.serve(pair, *far, self.page);
            }
            connection.hear(pair, self.page, &mut self.times, &mut whole);
        }
        self.left -= whole.len();
        for parent in whole {
            let children: Vec<usize> = self.page.children(parent).collect();
            children.into_iter().try_for_each(|child| self.want(pair, child))?;
        }
        Ok(())
    }

    /// When everything came, since the beginning.
    pub(super) fn end(self) -> Visited {
        let begin = self.begin;
        let seconds = |at: Option<Time>| at.map_or(0.0, |at| at.since(begin).as_secs_f64());
        let fetched = |times: &Times| Fetched {
            wanted: seconds(times.wanted),
            asked: seconds(times.asked),
            first: seconds(times.first),
            last: seconds(times.last),
        };
        let tls = self.connections.values().filter_map(|connection| connection.tls).min();
        Visited { objects: self.times.iter().map(fetched).collect(), tls: seconds(tls) }
    }
}

impl Connection {
    /// A new one, whose ClientHello goes with the opening of its flow.
    fn open(pair: &mut Pair, number: usize, hello: u64) -> Result<Self, EngineError> {
        let near = pair.open(Asked::Script(number))?;
        pair.write(NEAR, near, hello as usize);
        Ok(Self {
            number,
            hello,
            near,
            asked: Vec::new(),
            whole: 0,
            came: 0,
            counted: FLIGHT,
            tls: None,
            heard: 0,
            owed: 0,
            answered: 0,
        })
    }

    fn request(&self, pair: &mut Pair, number: usize, times: &mut [Times]) {
        pair.write(NEAR, self.near, REQUEST as usize);
        if let Some(times) = times.get_mut(number) {
            times.asked = Some(pair.now);
        }
    }

    /// The server's side.
    fn serve(&mut self, pair: &mut Pair, far: FlowId, page: &Page) {
        let greeted = self.heard >= self.hello;
        self.heard += pair.read(FAR, far);
        if !greeted && self.heard >= self.hello {
            self.owed += FLIGHT;
        }
        while let Some(number) = self.asked.get(self.answered)
            && self.heard >= self.hello + FINISHED + REQUEST * (self.answered as u64 + 1)
        {
            self.owed += HEAD + page.objects.get(*number).map_or(0, |object| object.bytes);
            self.answered += 1;
        }
        while self.owed > 0 {
            let piece = (pair.room(FAR, far) as u64).min(self.owed).min(32 << 10);
            if piece == 0 {
                return;
            }
            pair.write(FAR, far, piece as usize);
            self.owed -= piece;
        }
    }

    /// The client's side; `whole` gets the objects that are.
    fn hear(&mut self, pair: &mut Pair, page: &Page, times: &mut [Times], whole: &mut Vec<usize>) {
        self.came += pair.read(NEAR, self.near);
        if self.tls.is_none() && self.came >= FLIGHT {
            self.tls = Some(pair.now);
            pair.write(NEAR, self.near, FINISHED as usize);
            for number in self.asked.clone() {
                self.request(pair, number, times);
            }
        }
        while let Some(number) = self.asked.get(self.whole).copied()
            && self.came > self.counted
        {
            let Some(times) = times.get_mut(number) else { return };
            times.first = times.first.or(Some(pair.now));
            let bytes = HEAD + page.objects.get(number).map_or(0, |object| object.bytes);
            if self.came < self.counted + bytes {
                return;
            }
            times.last = Some(pair.now);
            self.counted += bytes;
            self.whole += 1;
            whole.push(number);
        }
    }
}
