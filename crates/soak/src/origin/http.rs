//! An origin of HTTP/1.1: `POST /exchange` takes a stream and answers with another, `GET /object/N` answers with an object
//! that caches may keep for some seconds, `GET /changing/N` with the present version of one that changes.

use super::{Version, accept, versions};
use crate::exchange::{Order, Pace, patiently};
use crate::laws::Door;
use crate::ledger::{Counted, Ledger, Side, Towards};
use bytes::Bytes;
use ekiden_model::rng::Rng;
use ekiden_testbed::load::pattern::Pattern;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep, sleep_until};

/// The largest piece of a body.
const PIECE: u64 = 32 << 10;
/// For how long an object may be kept, in seconds.
const FRESH: u64 = 4;
/// Objects of a run, and the largest of them.
pub(crate) const OBJECTS: u64 = 64;
const LARGEST: u64 = 256 << 10;

/// A body of the pattern, at a pace.
#[derive(Debug)]
pub(crate) struct PatternBody {
    pattern: Pattern,
    left: u64,
    pace: Pace,
    pause: Pin<Box<Sleep>>,
    /// Whether its length is said, or the body comes in chunks.
    sized: bool,
}

impl PatternBody {
    /// A body of so many bytes, at `rate` bytes a second.
    pub(crate) fn new(pattern: Pattern, length: u64, rate: u64, sized: bool) -> Self {
        let pause = Box::pin(sleep_until(Instant::now()));
        Self { pattern, left: length, pace: Pace::new(rate), pause, sized }
    }
}

impl Body for PatternBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.pause.as_mut().poll(cx));
        let most = self.left.min(PIECE) as usize;
        let piece = self.pattern.next(most);
        self.left -= piece.len() as u64;
        let next = self.pace.on_sent(piece.len());
        self.pause.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized { SizeHint::with_exact(self.left) } else { SizeHint::default() }
    }
}

/// Compares a whole body with a stream of known length. Errors: where it differs, or how it broke.
pub(crate) async fn compare(
    mut body: Incoming,
    mut pattern: Pattern,
    length: u64,
    side: &Side,
    mut opened: impl FnMut(),
) -> Result<(), crate::exchange::Failure> {
    use crate::exchange::Failure;
    let mut came = 0;
    loop {
        let frame = async { body.frame().await.transpose().map_err(io::Error::other) };
        let Some(frame) = patiently("a body", frame).await? else { break };
        let Ok(data) = frame.into_data() else { continue };
        opened();
        let wrong = |at| Failure::Wrong(format!("byte {at} of {length} of a body"));
        pattern.check(&data).map_err(wrong)?;
        side.on_compared(data.len() as u64);
        came += data.len() as u64;
    }
    match came == length {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("a body of {came} bytes for {length}"))),
    }
}

/// The object of this number: its stream and its length.
pub(crate) fn object(number: u64) -> (Pattern, u64) {
    let seed = number.wrapping_mul(0x9e37_79b9);
    (Pattern::of(seed), 1 + Rng::new(seed).below(LARGEST))
}

/// An order as the path of a request, and back.
pub(crate) fn path(order: &Order) -> String {
    format!("/exchange/{}/{}/{}/{}", order.seed, order.up, order.down, order.rate)
}

fn order(path: &str) -> Option<Order> {
    let mut numbers = path.strip_prefix("/exchange/")?.split('/').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Order { seed: next()?, up: next()?, down: next()?, rate: next()? })
}

pub(super) async fn serve(listener: TcpListener, door: Door, ledger: Arc<Ledger>) {
    loop {
        let Some(stream) = accept(&listener).await else { continue };
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let counted = Counted::new(stream, &ledger, door, Towards::Client);
            let answer = service_fn(|request| answer(request, door, Arc::clone(&ledger)));
            let io = TokioIo::new(counted);
            // connections that break are the clients' to tell
            let _broken = hyper::server::conn::http1::Builder::new()
                .half_close(true)
                .serve_connection(io, answer)
                .await;
        });
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn answer(
    request: Request<Incoming>,
    door: Door,
    ledger: Arc<Ledger>,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let path = request.uri().path().to_owned();
    if let Some(order) = order(&path) {
        let upwards = order.upwards();
        let live = ledger.live(order.seed);
        let moved = || live.iter().for_each(|live| live.on_moved());
        let came = compare(request.into_body(), upwards, order.up, ledger.up(door), moved).await;
        if let Err(failure) = came {
            if let crate::exchange::Failure::Wrong(what) = &failure {
                ledger.on_wrong(format!("{} at the server: {what}", door.name()));
            }
            return Err(format!("{failure:?}").into());
        }
        let sized = order.seed & 2 == 0;
        let body = PatternBody::new(order.downwards(), order.down, order.rate, sized);
        return Ok(Response::new(body.boxed()));
    }
    let number =
        |under: &str| path.strip_prefix(under).and_then(|number| number.parse::<u64>().ok());
    let (tag, fresh, (pattern, length)) = if let Some(number) = number("/object/") {
        (format!("\"{number}\""), FRESH, object(number))
    } else if let Some(number) = number("/changing/") {
        let version = Version::at(number, ledger.now());
        (version.tag(), versions::FRESH.as_secs(), version.body())
    } else {
        ledger.on_wrong(format!("{} at the server: the path {path}", door.name()));
        return Err("no such path".into());
    };
    let known = request.headers().get(IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let response = Response::builder()
        .header(CACHE_CONTROL, format!("max-age={fresh}"))
        .header(ETAG, &tag)
        .status(if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    let length = if known { 0 } else { length };
    Ok(response.body(PatternBody::new(pattern, length, u64::MAX, true).boxed())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_travel_in_paths() {
        let order = Order::draw(&mut Rng::new(3), 1_000);
        assert_eq!(super::order(&path(&order)), Some(order));
        assert_eq!(super::order("/exchange/1/2"), None);
    }
}
