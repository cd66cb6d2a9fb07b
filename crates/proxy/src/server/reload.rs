//! Reloading and stopping.

use super::forwards::bind_forwards;
use super::listener::{bind, log_refused_options};
use super::wireguard::check_wireguard;
use super::{Server, StartError, Stopped};
use crate::runtime::RuntimeConfig;
use crate::settings::Settings;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_model::units::Span;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Server {
    /// Takes a new configuration: new connections use it, live ones keep theirs. Accounts' limits,
    /// buffers, pressure and the pool change at once; pooled connections are not reused. Budgets
    /// and the cache keep the start's. After [`StartError`] nothing has changed.
    pub fn reload(&self, settings: Arc<Settings>) -> Result<(), StartError> {
        let inner = &self.inner;
        check_wireguard(&settings)?;
        let log = inner.log.prepare(&settings.access_log).map_err(StartError::AccessLog)?;
        // as they are now, and not a second ago
        inner.shared.system_names.refresh();
        let mut running = locked(&inner.listeners);
        let (listeners, settings) = bind(settings, &running)?;
        let forwards = bind_forwards(&settings, &locked(&inner.forwards))?;
        let before = inner.config();
        let (shared, directory) = (Arc::clone(&inner.shared), before.directory.clone());
        let config = RuntimeConfig::new(Arc::clone(&settings), shared, directory, Some(&before))
            .map_err(StartError::Settings)?;
        let client = settings.legs.get("client").cloned().unwrap_or_default();
        let mut leaving = Vec::new();
        running.retain(|address, (listener, task)| {
            let stays = settings.listen.contains(address);
            if stays {
                // new connections inherit these; options no longer configured stay, except our own programs
                let outcomes = client.socket.apply(listener.as_fd(), Stage::Listening);
                log_refused_options(*address, &outcomes, &client);
            } else {
                task.abort();
                leaving.push(Arc::clone(listener));
            }
            stays
        });
        drop(running);
        inner.shared.system_names.want_hosts(settings.dns.hosts_file);
        inner.config.send_replace(Arc::new(config));
        if let Err(error) = inner.start_tunnels() {
            tracing::error!("{error}; there are no tunnels until the next reload");
        }
        inner.log.replace(log);
        inner.shared.resources.reload(&settings);
        inner.shared.quotas.configure(&settings.sharing);
        inner.shared.dns.configure(&settings.dns);
        inner.accept_on(listeners);
        inner.forward_on(&settings, forwards);
        inner.answer_names_on(&settings);
        leaving.iter().for_each(|listener| inner.end_listening(listener));
        inner.end_other_wireguard(&settings);
        inner.open_gateway(&settings);
        inner.open_wireguard(&settings);
        inner.reloads.fetch_add(1, Relaxed);
        *locked(&inner.refused_reload) = None;
        Ok(())
    }

    /// A new configuration was refused for these reasons, here or before it came here. The status says so until another
    /// one is taken. The access log is opened again all the same.
    pub fn on_reload_refused(&self, why: Vec<String>) {
        let inner = &self.inner;
        // its file may have been moved away, whatever the configuration says
        let log = inner.log.prepare(&inner.config().settings.access_log);
        match log {
            Ok(log) => inner.log.replace(log),
            Err(error) => tracing::error!("the access log cannot be opened again: {error}"),
        }
        inner.reloads_refused.fetch_add(1, Relaxed);
        *locked(&inner.refused_reload) = Some((clock::now(), why));
    }

    /// Stops: accepts no new connections, rejects those that wait, ends idle ones, and lets live ones finish within
    /// `limit`.
    pub async fn stop(self, limit: Span) -> Stopped {
        let inner = &self.inner;
        inner.stop_diverting();
        inner.stop_listening();
        // counted before idle connections hear of it, which then end at once
        let begun = inner.registry.len() as u64;
        inner.stopping.send_replace(true);
        inner.shared.resources.stop();
        let wait = async {
            while inner.registry.len() > 0 || inner.shared.resources.rejections.are_any() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let cut = match tokio::time::timeout(limit.into(), wait).await {
            Ok(()) => 0,
            Err(_) => inner.registry.cut_all() as u64,
        };
        // connections pass by meanwhile, and their clients ask for names
        inner.stop_answering_names();
        if let Some(cache) = &inner.shared.cache {
            cache.close().await;
        }
        if let Some(tunnels) = inner.shared.tunnels() {
            tunnels.close().await;
        }
        inner.close_wireguard();
        inner.close_gateway();
        Stopped { finished: begun.saturating_sub(cut), cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Dns;
    use ekiden_model::dns::Asker;
    use hickory_resolver::proto::op::{Message, OpCode};
    use hickory_resolver::proto::rr::rdata::A;
    use hickory_resolver::proto::rr::{RData, Record};
    use std::fs;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::AtomicU32;
    use tokio::net::UdpSocket;

    #[tokio::test]
    async fn a_reload_reads_the_system_s_files_of_names_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let settings = |listen: SocketAddr, hosts_file| {
            let dns = Dns { hosts_file, ..Dns::default() };
            Arc::new(Settings { listen: vec![listen], dns, ..Settings::default() })
        };
        // from here on nothing waits: the relay's own look each second does not run
        let server = Server::start(settings((Ipv4Addr::LOCALHOST, 0).into(), false)).unwrap();
        let (inner, listen) = (&server.inner, server.status().listen[0]);
        inner.shared.system_names.turn_to(folder.path());
        let known = || inner.config().resolver.in_hosts_file("box", false);
        assert_eq!(known(), None);
        for n in [1, 22] {
            let conf = format!("nameserver 192.0.2.{n}\n");
            fs::write(folder.path().join("resolv.conf"), conf).unwrap();
            fs::write(folder.path().join("hosts"), format!("192.0.2.{n} box\n")).unwrap();
            server.reload(settings(listen, true)).unwrap();
            let servers = inner.config().name_servers.status();
            assert_eq!(servers[0].server, format!("192.0.2.{n}:53"));
            assert_eq!(known(), Some(vec![[192, 0, 2, n].into()]));
        }
        fs::write(folder.path().join("resolv.conf"), "nameserver 192.0.2.133\n").unwrap();
        server.reload(settings(listen, false)).unwrap();
        let servers = inner.config().name_servers.status();
        assert!(servers[0].server == "192.0.2.133:53" && known().is_none());
    }

    #[tokio::test]
    async fn a_reload_keeps_destinations_names_while_their_settings_are_the_same() {
        let name_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let servers = vec![name_server.local_addr().unwrap().into()];
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            while let Ok((n, from)) = name_server.recv_from(&mut buffer).await {
                count.fetch_add(1, Relaxed);
                let query = Message::from_vec(&buffer[..n]).unwrap();
                let mut reply = Message::response(query.id, OpCode::Query);
                reply.add_query(query.queries[0].clone());
                let name = query.queries[0].name().clone();
                reply.add_answer(Record::from_rdata(name, 600, RData::A(A::new(192, 0, 2, 7))));
                name_server.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
            }
        });
        let settings = |listen: SocketAddr, cache, keep_alive| {
            let servers = servers.clone();
            let dns = Dns { servers, hosts_file: false, cache, ..Dns::default() };
            let mut settings = Settings { listen: vec![listen], dns, ..Settings::default() };
            settings.timeouts.keep_alive = Span::from_secs(keep_alive);
            Arc::new(settings)
        };
        let server = Server::start(settings((Ipv4Addr::LOCALHOST, 0).into(), 9, 60)).unwrap();
        let listen = server.status().listen[0];
        let look = || async {
            let config = server.inner.config();
            let found = config.resolver.lookup("a.example", false, &Asker::Relay).await;
            assert_eq!(found, Ok(vec![[192, 0, 2, 7].into()]));
            asked.load(Relaxed)
        };
        assert_eq!(look().await, 1);
        server.reload(settings(listen, 9, 61)).unwrap();
        assert_eq!(look().await, 1);
        server.reload(settings(listen, 8, 61)).unwrap();
        assert_eq!(look().await, 2);
    }

    #[tokio::test]
    async fn refused_reloads_are_counted_and_the_last_one_s_reasons_stay_until_a_good_one() {
        let settings =
            |listen: SocketAddr| Arc::new(Settings { listen: vec![listen], ..Settings::default() });
        let server = Server::start(settings((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let of = |status: crate::observe::status::Status| {
            let errors = status.refused_reload.map(|refused| refused.errors);
            (status.reloads, status.reloads_refused, errors)
        };
        assert_eq!(of(server.status()), (0, 0, None));
        for why in ["first", "second"] {
            server.on_reload_refused(vec![why.to_owned()]);
        }
        assert_eq!(of(server.status()), (0, 2, Some(vec!["second".to_owned()])));
        server.reload(settings(server.status().listen[0])).unwrap();
        assert_eq!(of(server.status()), (1, 2, None));
    }
}
