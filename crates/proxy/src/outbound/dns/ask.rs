//! Asks servers one after the other until one answers, and keeps the streams to them.

use super::connection::Connection;
use super::https::{self, Https};
use super::pipe::Pipe;
use super::server::{NameServer, NameServers};
use super::{at_peer, here, late, udp};
use crate::outbound::tunnel::{FlowOwner, FlowRequest};
use crate::runtime::shared::Shared;
use crate::settings::DnsServer;
use crate::transfer::tls::TlsTransport;
use crate::wire::dns::{Answer, Form, Lie, Question, ServerReply};
use ekiden_linux::host::clock;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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
    let all = servers.list();
    let mut list: Vec<&Arc<NameServer>> = all.iter().collect();
    list.retain(|server| !(for_peer && server.is_beyond_tunnel()));
    let now = clock::now();
    list.sort_by_key(|server| !server.is_available(now));
    let mut why = "there is no server to ask".to_owned();
    // a server that has answered that it cannot is not asked again
    while !list.is_empty() && Instant::now() < end {
        let mut again = Vec::new();
        for server in list {
            let alone = all.len() == 1;
            // streams repeat what is lost by themselves
            let patient = if alone {
                end
            } else {
                end.min(Instant::now() + Duration::from(servers.limit) / 2)
            };
            let until = match &server.setting {
                DnsServer::Plain(_) => end.min(Instant::now() + DATAGRAM),
                _ => patient,
            };
            server.on_asked();
            match ask_one(shared, server, question, until, patient).await {
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
                    server.on_failure(&error);
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

/// `until`: the end of the first attempt; `patient`: that over TCP where UDP does not do.
async fn ask_one(
    shared: &Arc<Shared>,
    server: &Arc<NameServer>,
    question: &Question,
    until: Instant,
    patient: Instant,
) -> io::Result<ServerReply> {
    let reply = match &server.setting {
        DnsServer::Plain(at) => match udp::ask(shared, server, *at, question, until).await? {
            ServerReply::Truncated => {
                let asking = on_stream(shared, server, question);
                let asked = timeout_at(patient, asking).await.unwrap_or_else(|_| Err(late()));
                asked.map_err(|error| io::Error::new(error.kind(), format!("over TCP: {error}")))?
            }
            reply => return Ok(reply),
        },
        DnsServer::Tls { .. } | DnsServer::Https { .. } | DnsServer::Tunnel { .. } => {
            let asking = on_stream(shared, server, question);
            timeout_at(until, asking).await.unwrap_or_else(|_| Err(late()))?
        }
    };
    reply.map_err(|lie| {
        shared.dns.counts.lies.fetch_add(1, Relaxed);
        io::Error::other(lie)
    })
}

/// On the connection that all questions to this server share. One that breaks is opened anew once.
async fn on_stream(
    shared: &Arc<Shared>,
    server: &Arc<NameServer>,
    question: &Question,
) -> io::Result<Result<ServerReply, Lie>> {
    let opening = || open(Arc::clone(shared), Arc::clone(server));
    let (connection, fresh) = server.connection.get(opening).await?;
    match connection.ask(question).await {
        Err(error) if !fresh && error.kind() != io::ErrorKind::InvalidData => {
            let (connection, _) = server.connection.get(opening).await?;
            connection.ask(question).await
        }
        asked => asked,
    }
}

async fn open(shared: Arc<Shared>, server: Arc<NameServer>) -> io::Result<Connection> {
    let pipe = match &server.setting {
        DnsServer::Plain(at) => Pipe::new(TcpStream::connect(at).await.map_err(here)?, Form::PLAIN),
        DnsServer::Tls { at, .. } => Pipe::new(secure(&server, *at).await?, Form::PADDED),
        DnsServer::Https { at, name, path } => {
            let uri = https::uri(*at, name.as_deref(), path)?;
            let stream = secure(&server, *at).await?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(io::Error::other("it does not speak HTTP/2 within TLS"));
            }
            return Ok(Connection::Https(Box::pin(Https::new(stream, uri)).await?));
        }
        DnsServer::Tunnel { peer, to } => {
            let tunnels =
                shared.tunnels_to(peer).map_err(|failure| io::Error::other(failure.text))?;
            let to = at_peer(*to);
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let owner = FlowOwner::OWN;
            let request = FlowRequest { to: &to, client, owner, hops: 0, dscp: None };
            let flow = tunnels.open(peer, request, PATIENCE, Some(PATIENCE)).await;
            let flow = flow.map_err(|failure| io::Error::other(failure.text))?;
            Pipe::new(TlsTransport::new(flow.stream, Vec::new()), Form::PLAIN)
        }
    };
    Ok(Connection::Pipe(pipe))
}

async fn secure(server: &NameServer, at: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let Some((config, name)) = &server.tls else { return Err(late()) };
    let stream = TcpStream::connect(at).await.map_err(here)?;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(Arc::clone(config));
    Box::pin(connector.connect(name.clone(), stream)).await
}
