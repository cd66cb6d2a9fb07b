//! A question in a datagram: how it is sent, and which reply is taken.

use super::random::{random, random_id};
use super::server::NameServer;
use super::{here, late};
use crate::runtime::shared::Shared;
use crate::wire::dns::{Form, Lie, Question, SentQuestion, ServerReply};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Verdict, client_cookie};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// After so many datagrams that are not the reply, somebody is guessing: the question goes over TCP.
const MOST_LIES: u32 = 8;
/// The largest datagram that is read.
const LARGEST: usize = 4_096;

/// The reply, [`ServerReply::Truncated`] where the question must go over TCP. From a port of its own for each question,
/// which the kernel chooses at random (RFC 5452 §9.2); the kernel drops what other addresses send there.
pub(super) async fn ask(
    shared: &Arc<Shared>,
    server: &NameServer,
    at: SocketAddr,
    question: &Question,
    until: Instant,
) -> io::Result<ServerReply> {
    let any: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(here)?;
    socket.connect(at).await?;
    let local = socket.local_addr()?.ip();
    let own = shared.dns.cookie_secrets.client.map(|secret| client_cookie(&secret, local, at));
    let mut sending = locked(&server.capabilities).sending(clock::now(), own);
    let mut buffer = vec![0; LARGEST];
    let mut lies = 0;
    // the model repeats a question twice at most
    while !sending.tcp {
        let form = Form { edns: sending.edns, cookie: sending.cookie, padded: false };
        let letters = random().unwrap_or_default();
        let sent = SentQuestion::new(question, random_id(), form, &letters);
        let sent = sent.map_err(io::Error::other)?;
        socket.send(sent.as_bytes()).await?;
        sending = loop {
            let received = timeout_at(until, socket.recv(&mut buffer)).await;
            let n = received.unwrap_or_else(|_| Err(late()))?;
            let verdict = match sent.read(question, buffer[..n].to_vec()) {
                Ok((proof, reply)) => {
                    let now = clock::now();
                    match locked(&server.capabilities).on_reply(now, &sending, &proof) {
                        Verdict::Believe => return Ok(reply),
                        verdict => verdict,
                    }
                }
                // not even the identifier fits, or it is a late one: the reply may still come
                Err(Lie::Id | Lie::Unreadable | Lie::Question | Lie::NotAReply) => Verdict::Drop,
            };
            match verdict {
                Verdict::Repeat(next) => break next,
                Verdict::Tcp | Verdict::Believe => return Ok(ServerReply::Truncated),
                Verdict::Drop | Verdict::Doubt => {
                    shared.dns.counts.lies.fetch_add(1, Relaxed);
                    lies += 1;
                    if verdict == Verdict::Doubt || lies >= MOST_LIES {
                        return Ok(ServerReply::Truncated);
                    }
                }
            }
        };
    }
    Ok(ServerReply::Truncated)
}
