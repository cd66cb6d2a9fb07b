//! Requests in absolute form: exchanges with bodies both ways, and objects that caches may keep.

use super::{Clients, book, credentials, domain, name, volume};
use crate::exchange::{Failure, Order, patiently};
use crate::laws::{Door, Leg};
use crate::origin::{OBJECTS, PatternBody, Service, compare, object, path, port};
use bytes::Bytes;
use ekiden_model::rng::Rng;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HOST, HeaderName, HeaderValue, IF_NONE_MATCH, PROXY_AUTHORIZATION};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Duration, sleep, timeout};

type Sender = SendRequest<BoxBody<Bytes, Infallible>>;

/// Of the head of a response from a cache, more than it has.
pub(super) const HEAD: u64 = 1_024;
/// Requests over one connection at most.
const KEPT: u64 = 12;
/// A relay sends its reason with its head.
const REASON: Duration = Duration::from_secs(1);
/// Objects a second that each client asks for at most.
const OBJECTS_A_SECOND: u32 = 20;

/// A connection that is kept for some requests.
pub(super) struct Kept<'a> {
    clients: &'a Clients,
    door: Door,
    sender: Option<Sender>,
    left: u64,
}

impl<'a> Kept<'a> {
    pub(super) const fn new(clients: &'a Clients, door: Door) -> Self {
        Self { clients, door, sender: None, left: 0 }
    }

    /// Draws anew for how many requests a connection is kept, where the last one has had its own.
    pub(super) fn renew(&mut self, rng: &mut Rng) {
        if self.left == 0 {
            self.left = 1 + rng.below(KEPT);
            self.sender = None;
        }
    }

    /// The connection broke.
    pub(super) fn drop_connection(&mut self) {
        self.sender = None;
    }

    /// The response's head.
    async fn ask(
        &mut self,
        method: &str,
        to: (&str, u16),
        path: &str,
        body: BoxBody<Bytes, Infallible>,
    ) -> io::Result<Response<Incoming>> {
        self.ask_with(method, to, path, body, None).await
    }

    /// The same with a field more. Where that is a condition, the answer may be that it does not hold.
    pub(super) async fn ask_with(
        &mut self,
        method: &str,
        (name, port): (&str, u16),
        path: &str,
        body: BoxBody<Bytes, Infallible>,
        field: Option<(HeaderName, HeaderValue)>,
    ) -> io::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{name}:{port}{path}"))
            .header(HOST, format!("{name}:{port}"))
            .header(PROXY_AUTHORIZATION, credentials(self.door))
            .body(body)
            .map_err(io::Error::other)?;
        if let Some((name, value)) = field {
            request.headers_mut().insert(name, value);
        }
        let conditional = request.headers().contains_key(IF_NONE_MATCH);
        let mut kept = self.sender.take().filter(|_| self.left > 0);
        // a relay may end a connection between two requests
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            kept = None;
        }
        let mut sender = match kept {
            Some(kept) => kept,
            None => self.open().await?,
        };
        self.left = self.left.saturating_sub(1);
        let answer = async {
            sender.ready().await.map_err(io::Error::other)?;
            sender.send_request(request).await.map_err(io::Error::other)
        };
        // of an upload, the answer comes when all of it is sent
        let response = answer.await.map_err(|error| broken(&error))?;
        self.sender = Some(sender);
        match response.status().as_u16() {
            200 => Ok(response),
            304 if conditional => Ok(response),
            _ => {
                self.sender = None;
                let status = response.status();
                let why = reason(response).await;
                Err(io::Error::other(format!("{method}: HTTP {status}: {why}")))
            }
        }
    }

    /// One over this stream, for one request.
    pub(super) async fn over(
        clients: &'a Clients,
        door: Door,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> io::Result<Self> {
        Ok(Self { clients, door, sender: Some(shake(stream).await?), left: 1 })
    }

    async fn open(&self) -> io::Result<Sender> {
        shake(self.clients.counted(self.clients.connect().await?, self.door)).await
    }
}

async fn shake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> io::Result<Sender> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (sender, connection) = shaken.await.map_err(io::Error::other)?;
    // how it breaks, the request says
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// What a relay says in place of a server's answer, with its words for programs (RFC 9209).
async fn reason(response: Response<Incoming>) -> String {
    let said = response.headers().get("proxy-status").cloned();
    let said = said.map(|said| String::from_utf8_lossy(said.as_bytes()).into_owned());
    // what the transfer broke by has happened: this is not to last until the next fault
    let text = match timeout(REASON, response.into_body().collect()).await {
        Ok(Ok(text)) => String::from_utf8_lossy(&text.to_bytes()).trim().to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no text within {} s", REASON.as_secs()),
    };
    format!("{text} ({})", said.as_deref().unwrap_or("no Proxy-Status"))
}

/// An error of hyper, with its cause.
fn broken(error: &io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.source());
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    io::Error::other(format!("{error}{cause}"))
}

pub(super) async fn exchanges(clients: &Clients, leg: Leg, mut rng: Rng) {
    let door = Door::Forward;
    let mut kept = Kept::new(clients, door);
    while !clients.is_over() {
        kept.renew(&mut rng);
        let order = Order::draw(&mut rng, clients.rate);
        let name = name(&mut rng, leg);
        let live = clients.ledger.begin(domain(&name));
        // its server knows first that it is open: it has the upload before the client has an answer
        clients.ledger.expect(order.seed, &live);
        let transfer = async {
            let sized = order.seed & 1 == 0;
            let body = PatternBody::new(order.upwards(), order.up, order.rate, sized).boxed();
            let to = (&name[..], port(Service::Http, door));
            let response = kept.ask("POST", to, &path(&order), body).await?;
            let (pattern, side) = (order.downwards(), clients.ledger.down(door));
            compare(response.into_body(), pattern, order.down, side, || live.on_moved()).await
        };
        // a stalled upload is no different from one that broke
        let result = stalled(&order, transfer).await;
        if result.is_err() {
            kept.drop_connection();
        }
        if result.is_err() || leg == Leg::Upstream {
            clients.ledger.up(door).on_broken_chunks(order.up);
            clients.ledger.down(door).on_broken_chunks(order.down);
        }
        book(clients, (door, leg), &live, volume(&order), result).await;
    }
}

/// A transfer within the time that it takes, and patience.
async fn stalled(
    order: &Order,
    transfer: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let takes = Duration::from_secs(volume(order) / order.rate.max(1));
    let most = takes * 2 + crate::exchange::PATIENCE * 2;
    let late = |_| Failure::Ended(format!("not over after {} s", most.as_secs()));
    timeout(most, transfer).await.map_err(late)?
}

pub(super) async fn objects(clients: &Clients, leg: Leg, mut rng: Rng) {
    let door = Door::Cache;
    let mut kept = Kept::new(clients, door);
    while !clients.is_over() {
        kept.renew(&mut rng);
        let number = rng.below(OBJECTS);
        // the same names again and again: the cache knows objects by them
        let name = format!("objects.{}", leg.domain(number));
        let (pattern, length) = object(number);
        let live = clients.ledger.begin(domain(&name));
        let from_cache = AtomicBool::new(false);
        let transfer = async {
            let to = (&name[..], port(Service::Http, door));
            let path = format!("/object/{number}");
            let asked = kept.ask("GET", to, &path, Empty::new().boxed());
            let response = patiently("an object", asked).await?;
            let said = response.headers().get("cache-status").and_then(|said| said.to_str().ok());
            // a copy that a server confirmed is the relay's, too
            if said.is_some_and(|said| said.contains("hit") || said.contains("=304")) {
                from_cache.store(true, Relaxed);
            }
            let side = clients.ledger.down(door);
            compare(response.into_body(), pattern, length, side, || live.on_moved()).await
        };
        let result = transfer.await;
        // the relay has it already, and no server sends it; perhaps so where no head came
        if from_cache.load(Relaxed) || result.is_err() && !live.opened() {
            clients.ledger.down(door).on_sent(HEAD + length);
        }
        if result.is_err() {
            kept.drop_connection();
        }
        book(clients, (door, leg), &live, length, result).await;
        sleep(Duration::from_secs(1) / OBJECTS_A_SECOND).await;
    }
}
