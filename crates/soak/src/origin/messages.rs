//! An origin that speaks HTTP/1.1 by hand: interim answers, bodies in chunks with trailers both ways, and requests behind
//! each other (RFC 9110 sections 6.5 and 15.2, RFC 9112 section 9.3.2).

use super::accept;
use crate::exchange::{Failure, patiently};
use crate::laws::Door;
use crate::ledger::{Counted, Ledger, Side, Towards};
use ekiden_model::rng::Rng;
use ekiden_testbed::load::pattern::Pattern;
use std::sync::Arc;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpListener;

/// The largest body.
const LARGEST: u64 = 16 << 10;
/// The largest chunk that is sent.
const CHUNK: u64 = 2_048;
/// Interim answers to a request: fewer than this.
const INTERIM: u64 = 3;
/// The longest line, and the most fields of a head.
const LINE: u64 = 4_096;
const FIELDS: usize = 64;
/// The trailer's name; its value is the message's seed.
const TRAILER: &str = "Soak-Seed";

/// A request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) seed: u64,
    /// Bytes of the request's body, which has none if there are none, and of the answer's.
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// Interim answers before the final one.
    pub(crate) interim: u64,
}

impl Message {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let up = if rng.below(2) == 0 { 0 } else { 1 + rng.below(LARGEST) };
        let (down, interim) = (rng.below(LARGEST), rng.below(INTERIM));
        Self { seed: rng.next_u64(), up, down, interim }
    }

    fn path(&self) -> String {
        let Self { seed, up, down, interim } = self;
        format!("/message/{seed}/{up}/{down}/{interim}")
    }

    fn of_path(path: &str) -> Option<Self> {
        // of a request to a proxy, the path stands behind a name
        let mut numbers = path.split_once("/message/")?.1.split('/').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { seed: next()?, up: next()?, down: next()?, interim: next()? })
    }

    fn upwards(&self) -> Pattern {
        Pattern::of(self.seed)
    }

    /// The stream of the answer's body.
    pub(crate) fn downwards(&self) -> Pattern {
        Pattern::of(!self.seed)
    }

    /// The value of `Link` in its interim answers.
    pub(crate) fn link(&self) -> String {
        format!("</{}>; rel=preload", self.seed)
    }

    /// The whole request to a proxy.
    pub(crate) fn request(&self, (name, port): (&str, u16), authorization: &str) -> Vec<u8> {
        let method = if self.up == 0 { "GET" } else { "POST" };
        let path = self.path();
        let head = format!(
            "{method} http://{name}:{port}{path} HTTP/1.1\r\nHost: {name}:{port}\r\n\
             Proxy-Authorization: {authorization}\r\nTE: trailers\r\nConnection: TE\r\n"
        );
        let rest = match self.up {
            0 => b"\r\n".to_vec(),
            up => self.body(self.upwards(), up),
        };
        [head.into_bytes(), rest].concat()
    }

    /// Its interim answers.
    pub(crate) fn interim_answers(&self) -> Vec<u8> {
        let one = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", self.link());
        one.repeat(self.interim as usize).into_bytes()
    }

    /// Its final answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        let head = &b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n"[..];
        [head, &self.body(self.downwards(), self.down)[..]].concat()
    }

    /// The fields of a body, the end of its head, and the body, in chunks of drawn lengths with a trailer.
    fn body(&self, mut pattern: Pattern, mut left: u64) -> Vec<u8> {
        let head = format!("Transfer-Encoding: chunked\r\nTrailer: {TRAILER}\r\n\r\n");
        let (mut bytes, mut rng) = (head.into_bytes(), Rng::new(self.seed));
        while left > 0 {
            let piece = pattern.next((1 + rng.below(CHUNK)).min(left) as usize);
            bytes.extend(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend(piece);
            bytes.extend(b"\r\n");
            left -= piece.len() as u64;
        }
        bytes.extend(format!("0\r\n{TRAILER}: {}\r\n\r\n", self.seed).as_bytes());
        bytes
    }

    /// Compares a body in chunks that comes, and its trailer. Errors: where it differs, or how it broke.
    pub(crate) async fn compare(
        &self,
        from: &mut (impl AsyncBufRead + Unpin),
        (mut pattern, length): (Pattern, u64),
        side: &Side,
        mut moved: impl FnMut(),
    ) -> Result<(), Failure> {
        let (mut came, mut buffer) = (0, [0; 1_024]);
        loop {
            let size = line(from).await?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let mut left = u64::from_str_radix(digits, 16)
                .map_err(|_| Failure::Wrong(format!("a chunk of length {size:?}")))?;
            if left == 0 {
                break;
            }
            if left > length - came {
                return Err(Failure::Wrong(format!("a body of more than {length} bytes")));
            }
            while left > 0 {
                let most = left.min(buffer.len() as u64) as usize;
                let n = patiently("a chunk", from.read(&mut buffer[..most])).await?;
                if n == 0 {
                    return Err(Failure::Ended("ended within a chunk".to_owned()));
                }
                let wrong = |at| Failure::Wrong(format!("byte {at} of {length} in chunks"));
                pattern.check(&buffer[..n]).map_err(wrong)?;
                moved();
                side.on_compared(n as u64);
                left -= n as u64;
                came += n as u64;
            }
            if !line(from).await?.is_empty() {
                return Err(Failure::Wrong("a chunk without its end".to_owned()));
            }
        }
        if came < length {
            return Err(Failure::Wrong(format!("{came} of {length} bytes in chunks")));
        }
        let mut trailers = Vec::new();
        loop {
            let field = line(from).await?;
            if field.is_empty() {
                break;
            }
            trailers.extend(value(&field, TRAILER).map(str::to_owned));
        }
        match trailers == [self.seed.to_string()] {
            true => Ok(()),
            false => Err(Failure::Wrong(format!("the trailers {trailers:?} of {}", self.seed))),
        }
    }
}

/// A head, as lines.
#[derive(Debug)]
pub(crate) struct Head {
    /// Of a request, or the status.
    pub(crate) first: String,
    fields: Vec<String>,
}

impl Head {
    /// Reads one. Errors: it is none, or how it broke.
    pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Self, Failure> {
        let (first, mut fields) = (line(from).await?, Vec::new());
        while fields.len() < FIELDS {
            let field = line(from).await?;
            if field.is_empty() {
                return Ok(Self { first, fields });
            }
            fields.push(field);
        }
        Err(Failure::Wrong(format!("a head without an end after {first}")))
    }

    /// The second word of the first line: a request's target, or the status.
    pub(crate) fn word(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of the first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| value(field, name))
    }
}

/// The value of a field, if it has this name.
fn value<'a>(field: &'a str, name: &str) -> Option<&'a str> {
    let (own, value) = field.split_once(':')?;
    own.eq_ignore_ascii_case(name).then(|| value.trim())
}

/// A line without its end. Errors: it has none.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let reading = async { from.take(LINE).read_until(b'\n', &mut bytes).await };
    let length = patiently("a line", reading).await?;
    match bytes.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if bytes.ends_with(b"\n") || length as u64 == LINE => {
            Err(Failure::Wrong(format!("the line {:?}", String::from_utf8_lossy(&bytes))))
        }
        None => Err(Failure::Ended(format!("ended after {length} bytes of a line"))),
    }
}

pub(super) async fn serve(listener: TcpListener, door: Door, ledger: Arc<Ledger>) {
    loop {
        let Some(stream) = accept(&listener).await else { continue };
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let counted = Counted::new(stream, &ledger, door, Towards::Client);
            // what breaks is the client's to tell
            if let Err(Failure::Wrong(what)) = converse(counted, door, &ledger).await {
                ledger.on_wrong(format!("{} at the server: {what}", door.name()));
            }
        });
    }
}

/// Answers requests until the connection ends.
async fn converse(
    stream: impl AsyncRead + AsyncWrite,
    door: Door,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let (from, mut to) = tokio::io::split(Box::pin(stream));
    let mut from = BufReader::new(from);
    while !from.fill_buf().await?.is_empty() {
        let head = Head::read(&mut from).await?;
        let message = Message::of_path(head.word());
        let message = message.ok_or_else(|| Failure::Wrong(format!("a request {head:?}")))?;
        let live = ledger.live(message.seed);
        let moved = || live.iter().for_each(|live| live.on_moved());
        moved();
        if message.up > 0 {
            let body = (message.upwards(), message.up);
            message.compare(&mut from, body, ledger.up(door), moved).await?;
        }
        for bytes in [message.interim_answers(), message.answer()] {
            patiently("an answer", to.write_all(&bytes)).await?;
            patiently("an answer", to.flush()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const MESSAGE: Message = Message { seed: 9, up: 5_000, down: 7_000, interim: 2 };

    fn ledger() -> Arc<Ledger> {
        Ledger::new(Instant::now(), Duration::from_secs(9))
    }

    #[test]
    fn messages_travel_in_paths() {
        assert_eq!(Message::of_path(&MESSAGE.path()), Some(MESSAGE));
        assert_eq!(Message::of_path("/message/1/2/3"), None);
    }

    #[tokio::test]
    async fn requests_behind_each_other_are_answered_in_order() {
        let ledger = ledger();
        let (near, far) = tokio::io::duplex(1 << 20);
        let messages = [MESSAGE, Message { seed: 10, up: 0, ..MESSAGE }];
        let served = async { converse(far, Door::Messages, &ledger).await };
        let asked = async {
            let (from, mut to) = tokio::io::split(near);
            let bytes = messages.map(|message| message.request(("a.test", 80), "Basic eA=="));
            to.write_all(&bytes.concat()).await.unwrap();
            to.shutdown().await.unwrap();
            let (mut from, mut words) = (BufReader::new(from), Vec::new());
            for message in messages {
                let head = loop {
                    let head = Head::read(&mut from).await.unwrap();
                    words.push(head.word().to_owned());
                    if head.word() == "200" {
                        break head;
                    }
                    assert_eq!(head.field("link"), Some(&*message.link()));
                };
                assert_eq!(head.field("trailer"), Some(TRAILER));
                let body = (message.downwards(), message.down);
                let side = ledger.down(Door::Messages);
                message.compare(&mut from, body, side, || {}).await.unwrap();
            }
            words
        };
        let (served, words) = tokio::join!(served, asked);
        assert_eq!(words, ["103", "103", "200", "103", "103", "200"]);
        assert!(served.is_ok(), "{served:?}");
        assert_eq!(ledger.up(Door::Messages).read().1, 5_000);
    }

    async fn compared(body: &[u8]) -> Result<(), Failure> {
        let (mut from, ledger) = (body, ledger());
        let head = Head::read(&mut from).await?;
        assert_eq!(head.word(), "200");
        let side = ledger.down(Door::Messages);
        MESSAGE.compare(&mut from, (MESSAGE.downwards(), MESSAGE.down), side, || {}).await
    }

    #[tokio::test]
    async fn changed_bodies_and_trailers_are_wrong_and_cut_ones_have_broken() {
        let whole = MESSAGE.answer();
        assert!(compared(&whole).await.is_ok());
        let other = Message { seed: 8, ..MESSAGE }.answer();
        assert!(matches!(compared(&other).await, Err(Failure::Wrong(_))));
        let text = String::from_utf8_lossy(&whole[whole.len() - 40..]).into_owned();
        assert!(text.ends_with("0\r\nSoak-Seed: 9\r\n\r\n"), "{text}");
        let without = [&whole[..whole.len() - 16], b"\r\n"].concat();
        assert!(matches!(compared(&without).await, Err(Failure::Wrong(_))));
        for cut in [whole.len() - 1, whole.len() - 20, 3_000, 20] {
            let broken = compared(&whole[..cut]).await;
            assert!(matches!(broken, Err(Failure::Ended(_))), "{cut}: {broken:?}");
        }
    }
}
