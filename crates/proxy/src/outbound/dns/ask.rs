//! Asks servers: over UDP, on streams, and one after the other until one answers.

use super::at_peer;
use super::pipe::{Pipe, random_id};
use super::server::{NameServer, NameServers};
use crate::outbound::tunnel::FlowRequest;
use crate::runtime::shared::Shared;
use crate::settings::DnsServer;
use crate::transfer::tls::TlsTransport;
use crate::wire::dns::{Answer, Lie, Question, ServerReply, read_answer};
use ekiden_linux::host::clock;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// The longest wait for a datagram before the next server is asked, or the same again.
const DATAGRAM: Duration = Duration::from_millis(1_500);
/// After so many datagrams that are not the reply, somebody is guessing: the question goes over TCP.
const MOST_LIES: u32 = 8;
/// The largest datagram that is read.
const LARGEST: usize = 4_096;
/// A peer and its tunnel may be on their way.
const PATIENCE: Span = Span::from_secs(5);

/// Asks until a server answers or `servers.limit` has passed. `for_peer`: no server through a tunnel is asked, which
/// might ask back. Errors: in words.
pub(super) async fn ask(
    shared: &Arc<Shared>,
    servers: &NameServers,
    question: &Question,
    for_peer: bool,
) -> Result<Found<Arc<Answer>>, String> {
    let end = Instant::now() + Duration::from(servers.limit);
    let mut list: Vec<&Arc<NameServer>> = servers.list.iter().collect();
    list.retain(|server| !(for_peer && server.is_beyond_tunnel()));
    let now = clock::now();
    list.sort_by_key(|server| !server.is_available(now));
    let mut why = "there is no server to ask".to_owned();
    // a server that has answered that it cannot is not asked again
    while !list.is_empty() && Instant::now() < end {
        let mut again = Vec::new();
        for server in list {
            let alone = servers.list.len() == 1;
            let until = match &server.setting {
                DnsServer::Plain(_) => end.min(Instant::now() + DATAGRAM),
                // streams repeat what is lost by themselves
                _ if alone => end,
                _ => end.min(Instant::now() + Duration::from(servers.limit) / 2),
            };
            server.on_asked();
            match ask_one(shared, server, question, until, end).await {
                Ok(ServerReply::Found(found, left_out)) => {
                    server.on_answered();
                    shared.dns.counts.left_out.fetch_add(left_out as u64, Relaxed);
                    return Ok(found);
                }
                Ok(ServerReply::Failed(code)) => {
                    server.on_answered();
                    why = format!("{}: {code}", server.setting);
                }
                Ok(ServerReply::Truncated) => {
                    why = format!("{}: it shortens its replies over TCP", server.setting);
                }
                Err(error) => {
                    why = format!("{}: {error}", server.setting);
                    server.on_failure(&error.to_string());
                    // a refused port answers at once
                    if error.kind() == io::ErrorKind::TimedOut {
                        again.push(server);
                    }
                }
            }
        }
        list = again;
    }
    Err(why)
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no reply in time")
}

async fn ask_one(
    shared: &Arc<Shared>,
    server: &NameServer,
    question: &Question,
    until: Instant,
    end: Instant,
) -> io::Result<ServerReply> {
    let reply = match &server.setting {
        DnsServer::Plain(at) => match over_udp(shared, *at, question, until).await? {
            ServerReply::Truncated => {
                let over_tcp =
                    async { Pipe::new(TcpStream::connect(at).await?).ask(question).await };
                timeout_at(end, over_tcp).await.unwrap_or_else(|_| Err(late()))?
            }
            reply => return Ok(reply),
        },
        DnsServer::Tls { .. } | DnsServer::Tunnel { .. } => {
            let asking = on_stream(shared, server, question);
            timeout_at(until, asking).await.unwrap_or_else(|_| Err(late()))?
        }
    };
    reply.map_err(|lie| {
        shared.dns.counts.lies.fetch_add(1, Relaxed);
        io::Error::other(lie)
    })
}

/// From a port of its own for each question, which the kernel chooses at random (RFC 5452 §9.2); the kernel drops what
/// other addresses send there.
async fn over_udp(
    shared: &Arc<Shared>,
    at: SocketAddr,
    question: &Question,
    until: Instant,
) -> io::Result<ServerReply> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(at).await?;
    let id = random_id();
    socket.send(&question.message(id).map_err(io::Error::other)?).await?;
    let mut buffer = vec![0; LARGEST];
    let mut lies = 0;
    loop {
        let received = timeout_at(until, socket.recv(&mut buffer)).await;
        let n = received.unwrap_or_else(|_| Err(late()))?;
        match read_answer(question, id, &buffer[..n]) {
            Ok(reply) => return Ok(reply),
            // not even the identifier fits, or it is a late one: the reply may still come
            Err(Lie::Id | Lie::Unreadable | Lie::Question | Lie::NotAReply) => {
                shared.dns.counts.lies.fetch_add(1, Relaxed);
                lies += 1;
                if lies >= MOST_LIES {
                    return Ok(ServerReply::Truncated);
                }
            }
        }
    }
}

/// On the stream that all questions to this server share. One that breaks is opened anew once.
async fn on_stream(
    shared: &Arc<Shared>,
    server: &NameServer,
    question: &Question,
) -> io::Result<Result<ServerReply, Lie>> {
    for attempt in 0.. {
        let (pipe, fresh) = {
            let mut pipe = server.pipe.lock().await;
            match &*pipe {
                Some(open) if open.is_open() => (open.clone(), false),
                _ => (pipe.insert(open(shared, server).await?).clone(), true),
            }
        };
        match pipe.ask(question).await {
            Err(_) if !fresh && attempt == 0 => {
                let mut kept = server.pipe.lock().await;
                if kept.as_ref().is_some_and(|kept| !kept.is_open()) {
                    *kept = None;
                }
            }
            asked => return asked,
        }
    }
    Err(late())
}

async fn open(shared: &Arc<Shared>, server: &NameServer) -> io::Result<Pipe> {
    match &server.setting {
        DnsServer::Plain(at) => Ok(Pipe::new(TcpStream::connect(at).await?)),
        DnsServer::Tls { at, .. } => {
            let Some((config, name)) = &server.tls else { return Err(late()) };
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(Arc::clone(config));
            Ok(Pipe::new(Box::pin(connector.connect(name.clone(), stream)).await?))
        }
        DnsServer::Tunnel { peer, to } => {
            let tunnels =
                shared.tunnels_to(peer).map_err(|failure| io::Error::other(failure.text))?;
            let to = at_peer(*to);
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let request = FlowRequest { to: &to, client, hops: 0, dscp: None };
            let flow = tunnels.open(peer, request, PATIENCE, true).await;
            let flow = flow.map_err(|failure| io::Error::other(failure.text))?;
            Ok(Pipe::new(TlsTransport::new(flow.stream, Vec::new())))
        }
    }
}
