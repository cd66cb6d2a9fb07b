//! The ports at which clients ask for names, over reloads.

use super::listener::listen;
use super::{Inner, StartError};
use crate::inbound::dns::stream::{CLIENT, serve};
use crate::inbound::dns::udp::DnsPort;
use crate::inbound::dns::{Origin, asker};
use crate::settings::Settings;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::socket;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Those that are served, each over UDP and over TCP.
pub(super) type DnsPorts = BTreeMap<SocketAddr, [JoinHandle<()>; 2]>;

/// Sockets at a new address.
pub(super) struct BoundDns {
    at: SocketAddr,
    udp: DnsPort,
    tcp: TcpListener,
}

/// Opens every address that is not in `running`.
pub(super) fn bind_dns(
    settings: &Settings,
    running: &DnsPorts,
) -> Result<Vec<BoundDns>, StartError> {
    let wanted: BTreeSet<SocketAddr> = settings.dns.listen.iter().copied().collect();
    let new = wanted.into_iter().filter(|at| !running.contains_key(at));
    new.map(|at| bind_name_port(settings, at)).collect()
}

/// Opens one address.
pub(super) fn bind_name_port(settings: &Settings, at: SocketAddr) -> Result<BoundDns, StartError> {
    let client = settings.legs.get("client").cloned().unwrap_or_default();
    let wrong = |error| StartError::Listen { address: at, error };
    let udp = DnsPort::bind(at).map_err(wrong)?;
    let (_, tcp) = listen(&client, at, false).map_err(wrong)?;
    Ok(BoundDns { at, udp, tcp })
}

impl Inner {
    /// Serves new addresses, and closes those that the settings no longer have.
    pub(super) fn answer_names_on(self: &Arc<Self>, settings: &Settings, bound: Vec<BoundDns>) {
        let mut running = locked(&self.dns);
        running.retain(|at, tasks| {
            let stays = settings.dns.listen.contains(at);
            if !stays {
                tasks.iter().for_each(JoinHandle::abort);
            }
            stays
        });
        for bound in bound {
            running.insert(bound.at, self.answer_names_at(bound));
        }
    }

    /// Serves one address.
    pub(super) fn answer_names_at(self: &Arc<Self>, bound: BoundDns) -> [JoinHandle<()>; 2] {
        let BoundDns { at, udp, tcp } = bound;
        tracing::info!("answers questions for names at {at}");
        let inner = Arc::clone(self);
        let udp = tokio::spawn(async move { udp.serve(|| inner.config()).await });
        let tcp = tokio::spawn(Arc::clone(self).accept_questions(tcp));
        [udp, tcp]
    }

    pub(super) fn stop_answering_names(&self) {
        let running = std::mem::take(&mut *locked(&self.dns));
        running.into_values().flatten().for_each(|task| task.abort());
    }

    async fn accept_questions(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.answer_on(stream, client),
                Err(error) => self.on_accept_error(&error).await,
            }
        }
    }

    fn answer_on(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) {
        let dns = &self.shared.dns;
        let ip = client.ip().to_canonical();
        let Some(asker) = asker(&self.config(), ip) else {
            dns.counts.refused.fetch_add(1, Relaxed);
            let _ = socket::abort(stream.as_fd());
            return;
        };
        let room = dns.stream(ip).zip(self.shared.resources.make_room(ip.into()));
        let Some(room) = room else {
            dns.counts.limited.fetch_add(1, Relaxed);
            let _ = socket::abort(stream.as_fd());
            return;
        };
        let (inner, mut stopping) = (Arc::clone(self), self.stopping.subscribe());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let serving = serve(|| inner.config(), (Origin::Tcp(ip), asker), CLIENT, stream);
            tokio::select! {
                () = serving => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            drop(room);
        });
    }
}
