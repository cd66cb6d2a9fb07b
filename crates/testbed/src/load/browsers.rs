//! People at browsers, each a thread with one connection to a proxy that reads pages and pauses. Random numbers
//! are drawn in the same order as by the clients of `ekiden_simulator::applications::proxy`.

use super::documents::STACK;
use super::fetch::{Fetched, fetch};
use ekiden_model::network::workload::distributions::uniform;
use ekiden_model::network::workload::surge::{Page, Surge};
use ekiden_model::rng::Rng;
use ekiden_model::units::Span;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What all people of a crowd have in common.
#[derive(Debug)]
pub struct BrowserConfig {
    /// What is asked for.
    pub surge: Surge,
    /// Whom they ask.
    pub proxy: SocketAddr,
    /// Whose documents these are.
    pub servers: Vec<SocketAddr>,
    /// When the first may begin.
    pub begin: Instant,
    /// When all stop.
    pub end: Instant,
    /// What came of it.
    pub ledger: Ledger,
}

/// What came of a crowd's wishes.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Bytes of documents, also of those that did not come whole.
    pub bytes: AtomicU64,
    entries: Mutex<Entries>,
}

/// The same, one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Documents asked for.
    pub asked: u64,
    /// Documents that came whole: bytes, and the time from the wish to the last byte, waiting included.
    pub answered: Vec<(u64, Duration)>,
    /// Answers of another status than 200, which end a page; a busy proxy sends 503.
    pub refused: u64,
    /// Of those, others than 503.
    pub errors: u64,
    /// Connections that broke, or could not be made; they end a page too.
    pub failed: u64,
    /// The first of those, in words.
    pub first_failure: Option<String>,
    /// Requests repeated since their connection was closed while they were on their way.
    pub repeated: u64,
    /// Connections made.
    pub opened: u64,
    /// Of those, the ones that replaced one that the proxy had closed between two requests.
    pub closed_idle: u64,
    /// Answers after which the connection closes.
    pub not_kept: u64,
    /// Wishes that were open when time was over.
    pub outstanding: u64,
}

impl Entries {
    fn failed(&mut self, what: String) -> Became {
        self.failed += 1;
        self.first_failure.get_or_insert(what);
        Became::Denied
    }
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it now.
    pub fn read(&self) -> Entries {
        self.entries().clone()
    }
}

/// Starts a person for each source of random numbers, in the calling thread's network namespace. They end by
/// themselves. Errors: there can be no thread.
pub fn begin(
    crowd: &Arc<BrowserConfig>,
    people: impl IntoIterator<Item = Rng>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let one = |rng| {
        let crowd = Arc::clone(crowd);
        let live = move || Person::new(rng, &crowd).live(&crowd);
        thread::Builder::new().stack_size(STACK).spawn(live)
    };
    people.into_iter().map(one).collect()
}

struct Person {
    rng: Rng,
    /// In the middle of a pause at first, so that not all come at once.
    first: Span,
    connection: Option<TcpStream>,
}

/// What became of a wish.
enum Became {
    Fulfilled,
    Denied,
    TimeOver,
}

impl Person {
    fn new(mut rng: Rng, crowd: &BrowserConfig) -> Self {
        let pause = crowd.surge.page(&mut rng).inactive;
        let first = Span::from_nanos(rng.below(pause.as_nanos().max(1)));
        Self { rng, first, connection: None }
    }

    fn live(mut self, crowd: &BrowserConfig) {
        let begin = Duration::from_nanos(self.first.as_nanos());
        let _began = sleep_until(crowd.begin + begin, crowd.end);
        while Instant::now() < crowd.end {
            let server = self.rng.below(crowd.servers.len().max(1) as u64) as usize;
            let page = crowd.surge.page(&mut self.rng);
            if !self.read(&page, server, crowd) || !pause(page.inactive, crowd.end) {
                return;
            }
        }
    }

    /// Reads a page until its end, or until something is refused; false when time is over.
    fn read(&mut self, page: &Page, server: usize, crowd: &BrowserConfig) -> bool {
        let Some(server) = crowd.servers.get(server) else { return false };
        for (number, length) in page.documents.iter().enumerate() {
            // whether a cache has it, which here none has: the simulator's people draw this next
            let _hit = uniform(&mut self.rng);
            match self.wish((*server, length.as_u64()), crowd) {
                Became::Fulfilled => {}
                Became::Denied => return true,
                Became::TimeOver => return false,
            }
            if let Some(active) = page.active.get(number)
                && !pause(*active, crowd.end)
            {
                return false;
            }
        }
        true
    }

    fn wish(&mut self, wanted: (SocketAddr, u64), crowd: &BrowserConfig) -> Became {
        let since = Instant::now();
        crowd.ledger.entries().asked += 1;
        loop {
            let (mut stream, used) = match self.connected(crowd) {
                Ok(connected) => connected,
                Err(error) => return failed(&error, crowd),
            };
            let fetched = fetch(&mut stream, wanted, crowd.end, &crowd.ledger.bytes);
            let entries = &mut crowd.ledger.entries();
            match fetched {
                Ok(Fetched::Whole { keeps }) => {
                    entries.answered.push((wanted.1, since.elapsed()));
                    entries.not_kept += u64::from(!keeps);
                    self.connection = keeps.then_some(stream);
                    return Became::Fulfilled;
                }
                Ok(Fetched::Refused(status)) => {
                    entries.refused += 1;
                    entries.errors += u64::from(status != 503);
                    return Became::Denied;
                }
                Ok(Fetched::Closed) if used => entries.repeated += 1,
                Ok(Fetched::Closed) => {
                    return entries
                        .failed("a new connection was closed before an answer".to_owned());
                }
                Ok(Fetched::Late) => {
                    entries.outstanding += 1;
                    return Became::TimeOver;
                }
                Err(error) => return entries.failed(format!("within an answer: {error}")),
            }
        }
    }

    /// The connection there is, or a new one; and whether it was used before.
    fn connected(&mut self, crowd: &BrowserConfig) -> io::Result<(TcpStream, bool)> {
        if let Some(stream) = self.connection.take() {
            if !is_closed(&stream)? {
                return Ok((stream, true));
            }
            crowd.ledger.entries().closed_idle += 1;
        }
        let left = crowd.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let stream = TcpStream::connect_timeout(&crowd.proxy, left)?;
        stream.set_nodelay(true)?;
        crowd.ledger.entries().opened += 1;
        Ok((stream, false))
    }
}

/// A connection could not be made; if only since time is over, the wish is outstanding.
fn failed(error: &io::Error, crowd: &BrowserConfig) -> Became {
    let entries = &mut crowd.ledger.entries();
    if Instant::now() >= crowd.end {
        entries.outstanding += 1;
        return Became::TimeOver;
    }
    entries.failed(format!("connecting: {error}"))
}

/// Whether the other side has ended it.
fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let closed = match stream.peek(&mut [0]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false)?;
    Ok(closed)
}

/// False when time is over before.
fn pause(span: Span, end: Instant) -> bool {
    sleep_until(Instant::now() + Duration::from_nanos(span.as_nanos()), end)
}

fn sleep_until(then: Instant, end: Instant) -> bool {
    thread::sleep(then.min(end).saturating_duration_since(Instant::now()));
    then < end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::fetch::{Head, read_head};
    use crate::load::servers::{Server, serve};
    use std::io::Write;
    use std::sync::atomic::Ordering;

    /// An answer with a document of the length that was asked for.
    fn answer(asked: &Head, more: &str, status: u16) -> Vec<u8> {
        let length = asked.asked_length().unwrap();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{more}\r\n");
        [head.as_bytes(), &vec![0; length as usize]].concat()
    }

    /// A proxy that answers each request by itself: documents of the length asked for.
    fn proxy(more: &'static str, status: u16) -> Server<u64> {
        let work = move |mut stream: TcpStream| {
            let mut served = 0;
            let mut rest = Vec::new();
            while let Ok(Some(head)) = read_head(&mut stream, &mut rest)
                && stream.write_all(&answer(&head, more, status)).is_ok()
            {
                served += 1;
            }
            served
        };
        serve(work).unwrap()
    }

    fn lived(proxy: SocketAddr, people: u64, seconds: f64) -> Entries {
        // as the study's, but a hundred times as quick and small
        let mut surge = Surge::published();
        (surge.active.0, surge.inactive.0) = (0.002, 0.01);
        surge.active.2 = Span::from_millis(20);
        surge.inactive.2 = Span::from_millis(50);
        (surge.main.most, surge.embedded.most) = (1e5, 1e5);
        let begin = Instant::now();
        let crowd = Arc::new(BrowserConfig {
            surge,
            proxy,
            servers: vec![proxy],
            begin,
            end: begin + Duration::from_secs_f64(seconds),
            ledger: Ledger::default(),
        });
        for person in super::begin(&crowd, (0..people).map(Rng::new)).unwrap() {
            person.join().unwrap();
        }
        let entries = crowd.ledger.read();
        let whole: u64 = entries.answered.iter().map(|(bytes, _)| bytes).sum();
        assert!(crowd.ledger.bytes.load(Ordering::Relaxed) >= whole);
        let became =
            entries.answered.len() as u64 + entries.refused + entries.failed + entries.outstanding;
        assert_eq!(entries.asked, became, "{entries:?}");
        entries
    }

    #[test]
    fn keeps_one_connection_a_person() {
        let entries = lived(proxy("", 200).address, 5, 1.0);
        assert!(entries.answered.len() > 20, "{entries:?}");
        assert_eq!((entries.opened, entries.not_kept, entries.refused), (5, 0, 0));
        assert_eq!((entries.failed, entries.first_failure), (0, None));
    }

    #[test]
    fn opens_another_connection_when_it_may_not_keep_one() {
        let entries = lived(proxy("Connection: close\r\n", 200).address, 2, 0.5);
        assert!(entries.opened > 2 && entries.not_kept == entries.answered.len() as u64);
    }

    #[test]
    fn rejected_client_pauses_and_retries() {
        let entries = lived(proxy("", 503).address, 2, 0.5);
        assert!(entries.refused > 2 && entries.errors == 0, "{entries:?}");
        assert!(entries.answered.is_empty());
        assert_eq!(entries.opened, entries.refused + entries.outstanding);
    }

    #[test]
    fn retries_on_a_closed_connection() {
        // one answer a connection, which does not say so
        let once = serve(|mut stream| {
            let head = read_head(&mut stream, &mut Vec::new()).unwrap().unwrap();
            stream.write_all(&answer(&head, "", 200)).is_ok()
        });
        let entries = lived(once.unwrap().address, 2, 0.5);
        assert!(entries.closed_idle + entries.repeated > 2, "{entries:?}");
        assert_eq!((entries.failed, entries.refused), (0, 0));
    }
}
