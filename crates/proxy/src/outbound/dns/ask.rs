//! Asks servers one after the other until one answers, and keeps the streams to them.

use super::pipe::Pipe;
use super::server::{NameServer, NameServers};
use super::{at_peer, late, udp};
use crate::outbound::tunnel::FlowRequest;
use crate::runtime::shared::Shared;
use crate::settings::DnsServer;
use crate::transfer::tls::TlsTransport;
use crate::wire::dns::{Answer, Form, Lie, Question, ServerReply};
use ekiden_linux::host::clock;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// The longest wait for a datagram before the next server is asked, or the same again.
const DATAGRAM: Duration = Duration::from_millis(1_500);
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

async fn ask_one(
    shared: &Arc<Shared>,
    server: &NameServer,
    question: &Question,
    until: Instant,
    end: Instant,
) -> io::Result<ServerReply> {
    let reply = match &server.setting {
        DnsServer::Plain(at) => match udp::ask(shared, server, *at, question, until).await? {
            ServerReply::Truncated => {
                let asking = on_stream(shared, server, question);
                timeout_at(end, asking).await.unwrap_or_else(|_| Err(late()))?
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
        DnsServer::Plain(at) => Ok(Pipe::new(TcpStream::connect(at).await?, Form::PLAIN)),
        DnsServer::Tls { at, .. } => {
            let Some((config, name)) = &server.tls else { return Err(late()) };
            let stream = TcpStream::connect(at).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(Arc::clone(config));
            let stream = Box::pin(connector.connect(name.clone(), stream)).await?;
            Ok(Pipe::new(stream, Form::PADDED))
        }
        DnsServer::Tunnel { peer, to } => {
            let tunnels =
                shared.tunnels_to(peer).map_err(|failure| io::Error::other(failure.text))?;
            let to = at_peer(*to);
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let request = FlowRequest { to: &to, client, hops: 0, dscp: None };
            let flow = tunnels.open(peer, request, PATIENCE, true).await;
            let flow = flow.map_err(|failure| io::Error::other(failure.text))?;
            Ok(Pipe::new(TlsTransport::new(flow.stream, Vec::new()), Form::PLAIN))
        }
    }
}
