//! The servers of a configuration, and whether they answer.

use super::EXHAUSTED;
use super::kept::KeptConnection;
use crate::observe::flap_lines::FlapLines;
use crate::observe::status::DnsServerStatus;
use crate::outbound::resolve::system_names::{Known, SystemNames};
use crate::policy::trust;
use crate::settings::{Dns, DnsServer, UpstreamTls};
use crate::wire::dns::Nat64;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::failover::{Config, Health};
use ekiden_model::dns::Capabilities;
use ekiden_model::units::{Span, Time};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct NameServers {
    dns: Dns,
    system: Arc<SystemNames>,
    listed: Listed,
    pub(crate) nat64: Option<Nat64>,
    /// How long an answer may take, all servers together.
    pub(crate) limit: Span,
}

type List = Arc<[Arc<NameServer>]>;

#[derive(Debug)]
enum Listed {
    OfSettings(List),
    /// By what was known of the system.
    OfSystem(Mutex<(Arc<Known>, List)>),
}

#[derive(Debug)]
pub(crate) struct NameServer {
    pub(crate) setting: DnsServer,
    authorities: Option<PathBuf>,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The connection that questions share.
    pub(super) connection: KeptConnection,
    /// What is known of it over UDP.
    pub(crate) capabilities: Mutex<Capabilities>,
    health: Mutex<ServerHealth>,
    asked: AtomicU64,
    answered: AtomicU64,
}

#[derive(Debug)]
struct ServerHealth {
    health: Health,
    /// In words.
    last_error: Option<String>,
    lines: FlapLines,
}

impl NameServers {
    /// Servers that were there before keep their state. Errors: in words; TLS cannot be set up.
    pub(crate) fn new(
        dns: &Dns,
        limit: Span,
        system: Arc<SystemNames>,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let (known, before) = (system.known(), before.map(Self::list));
        let list = servers(dns, &known, before.as_deref().unwrap_or_default())?;
        Ok(Self {
            dns: dns.clone(),
            system,
            listed: match dns.servers.is_empty() {
                false => Listed::OfSettings(list),
                true => Listed::OfSystem(Mutex::new((known, list))),
            },
            nat64: dns.nat64.and_then(Nat64::new),
            limit,
        })
    }

    /// Those of the settings, or of `/etc/resolv.conf` as it was read last.
    pub(crate) fn list(&self) -> List {
        let listed = match &self.listed {
            Listed::OfSettings(list) => return Arc::clone(list),
            Listed::OfSystem(listed) => listed,
        };
        let (before, list) = &mut *locked(listed);
        let known = self.system.known();
        if !Arc::ptr_eq(before, &known)
            && let Ok(new) = servers(&self.dns, &known, list)
        {
            (*before, *list) = (known, new);
        }
        Arc::clone(list)
    }

    /// Whether some are asked through tunnels.
    pub(crate) fn uses_tunnels(&self) -> bool {
        self.list().iter().any(|server| server.is_beyond_tunnel())
    }

    /// Whether all are asked as any program asks.
    pub(crate) fn are_plain(&self) -> bool {
        self.list().iter().all(|server| matches!(server.setting, DnsServer::Plain(_)))
    }

    pub(crate) fn status(&self) -> Vec<DnsServerStatus> {
        self.list().iter().map(|server| server.status()).collect()
    }
}

/// Those of `before` keep their state. Errors: in words; TLS cannot be set up.
fn servers(dns: &Dns, known: &Known, before: &[Arc<NameServer>]) -> Result<List, String> {
    let settings = match dns.servers.as_slice() {
        [] => of_the_system(dns, known),
        servers => servers.to_vec(),
    };
    let server = |setting: DnsServer| {
        let mut before = before.iter();
        let known = before.find(|one| one.setting == setting && one.authorities == dns.authorities);
        match known {
            Some(known) => Ok(Arc::clone(known)),
            None => NameServer::new(setting, dns).map(Arc::new),
        }
    };
    settings.into_iter().map(server).collect()
}

/// Those of `/etc/resolv.conf`, but for this relay itself.
fn of_the_system(dns: &Dns, known: &Known) -> Vec<DnsServer> {
    // the relay's own resolver says so
    let Some((servers, _)) = &known.servers else { return Vec::new() };
    let servers = servers.iter().map(|server| SocketAddr::new(server.ip, 53));
    let own = |at: &SocketAddr| {
        dns.listen.iter().any(|own| {
            own == at
                || own.port() == at.port() && own.ip().is_unspecified() && at.ip().is_loopback()
        })
    };
    servers.filter(|at| !own(at)).map(DnsServer::Plain).collect()
}

impl NameServer {
    fn new(setting: DnsServer, dns: &Dns) -> Result<Self, String> {
        let authorities = dns.authorities.clone();
        let tls = match &setting {
            DnsServer::Tls { at, name } | DnsServer::Https { at, name, .. } => {
                let trusted = UpstreamTls { authorities: authorities.clone(), fingerprint: None };
                let wrong = |why: String| format!("DNS server {setting}: {why}");
                let mut config = ClientConfig::clone(&*trust::client(&trusted).map_err(wrong)?);
                // RFC 7858 §3.1, RFC 8484 §5.2
                let https = matches!(setting, DnsServer::Https { .. });
                let protocol: &[u8] = if https { b"h2" } else { b"dot" };
                config.alpn_protocols = vec![protocol.to_vec()];
                let name = name.clone().unwrap_or_else(|| at.ip().to_string());
                let name = ServerName::try_from(name)
                    .map_err(|_| wrong("this cannot be a name in a certificate".to_owned()))?;
                Some((Arc::new(config), name))
            }
            DnsServer::Plain(_) | DnsServer::Tunnel { .. } => None,
        };
        Ok(Self {
            setting,
            authorities,
            tls,
            connection: KeptConnection::default(),
            capabilities: Mutex::default(),
            health: Mutex::new(ServerHealth {
                health: Health::new(Config::default()),
                last_error: None,
                lines: FlapLines::default(),
            }),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        })
    }

    pub(crate) const fn is_beyond_tunnel(&self) -> bool {
        matches!(self.setting, DnsServer::Tunnel { .. })
    }

    pub(crate) fn is_available(&self, now: Time) -> bool {
        locked(&self.health).health.is_available(now)
    }

    pub(crate) fn on_asked(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_answered(&self) {
        self.answered.fetch_add(1, Relaxed);
        let ServerHealth { health, lines, .. } = &mut *locked(&self.health);
        let was_failed = health.failures() > 0;
        health.on_success();
        if let Some(left_out) = lines.next(clock::now(), false, was_failed) {
            tracing::info!(server = %self.setting, left_out, "DNS server reachable again");
        }
    }

    /// It was not reached, or did not answer.
    pub(crate) fn on_failure(&self, error: &io::Error) {
        // exhaustion is this machine's own condition
        if error.kind() == EXHAUSTED {
            return;
        }
        let now = clock::now();
        let ServerHealth { health, last_error, lines } = &mut *locked(&self.health);
        let is_news = health.failures() == 0;
        health.on_failure(now);
        if let Some(left_out) = lines.next(now, true, is_news) {
            tracing::warn!(server = %self.setting, left_out, "DNS server does not answer: {error}");
        }
        *last_error = Some(error.to_string());
    }

    fn status(&self) -> DnsServerStatus {
        let now = clock::now();
        let capabilities = locked(&self.capabilities).clone();
        let ServerHealth { health, last_error, .. } = &*locked(&self.health);
        DnsServerStatus {
            server: self.setting.to_string(),
            available: health.is_available(now),
            changes_case: capabilities.changes_case(now),
            lacks_edns: capabilities.lacks_edns(now),
            cookies: capabilities.has_cookie(),
            asked: self.asked.load(Relaxed),
            answered: self.answered.load(Relaxed),
            last_error: last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::here;
    use super::*;
    use crate::observe::log_throttle::counting::lines_of;
    use std::fs;

    #[test]
    fn a_name_server_that_flaps_gets_two_lines_in_ten_seconds() {
        let setting = DnsServer::Plain((std::net::Ipv4Addr::LOCALHOST, 53).into());
        let server = NameServer::new(setting, &Dns::default()).unwrap();
        let flaps = || {
            for _ in 0..100 {
                server.on_failure(&io::Error::other("no answer"));
                server.on_answered();
            }
        };
        assert!((2..=4).contains(&lines_of(flaps)));
    }

    #[test]
    fn servers_of_the_system_are_those_that_its_file_named_last() {
        let folder = tempfile::tempdir().unwrap();
        let [conf, hosts] = ["resolv.conf", "hosts"].map(|name| folder.path().join(name));
        let system = Arc::new(SystemNames::new(&conf, &hosts, true));
        let new = |dns: &Dns| NameServers::new(dns, Span::ZERO, Arc::clone(&system), None).unwrap();
        let named = |servers: &NameServers| -> Vec<String> {
            servers.list().iter().map(|server| server.setting.to_string()).collect()
        };
        let servers = new(&Dns::default());
        assert!(named(&servers).is_empty());
        let say = |text: &str| {
            fs::write(&conf, text).unwrap();
            system.refresh();
        };
        say("nameserver 192.0.2.1\n");
        assert_eq!(named(&servers), ["192.0.2.1:53"]);
        let first = Arc::clone(&servers.list()[0]);
        say("nameserver 192.0.2.77\nnameserver 192.0.2.1\n");
        assert_eq!(named(&servers), ["192.0.2.77:53", "192.0.2.1:53"]);
        assert!(Arc::ptr_eq(&servers.list()[1], &first), "its state stays");
        // what cannot be used, or names none, changes no server
        for text in ["search example\n", "nameserver 192.0.2.9\n".repeat(10_000).as_str()] {
            say(text);
            assert_eq!(named(&servers).len(), 2);
        }
        fs::remove_file(&conf).unwrap();
        system.refresh();
        assert_eq!(named(&servers).len(), 2);
        let dns =
            Dns { servers: vec![DnsServer::Plain(([192, 0, 2, 3], 53).into())], ..Dns::default() };
        let configured = new(&dns);
        say("nameserver 192.0.2.4\n");
        assert_eq!(named(&configured), ["192.0.2.3:53"]);
    }

    #[test]
    fn a_server_does_not_fail_for_want_of_descriptors_or_ports_here() {
        let setting = DnsServer::Plain((std::net::Ipv4Addr::LOCALHOST, 53).into());
        let server = NameServer::new(setting, &Dns::default()).unwrap();
        for code in [libc::EMFILE, libc::ENFILE, libc::EADDRINUSE, libc::EADDRNOTAVAIL] {
            let error = here(io::Error::from_raw_os_error(code));
            // as it comes from a connection that questions share
            server.on_failure(&io::Error::new(error.kind(), format!("over TCP: {error}")));
        }
        assert_eq!(server.status().last_error, None);
        let refused = here(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        server.on_failure(&refused);
        assert!(server.status().last_error.is_some());
    }
}
