//! What `/etc/resolv.conf` and `/etc/hosts` say, read again when they change: networks come and go.

use crate::runtime::file_stamp::{FileStamp, stamp};
use ekiden_linux::host::sync::locked;
use hickory_resolver::Hosts;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The most bytes of `/etc/resolv.conf`.
const CONF_MOST: u64 = 64 << 10;
/// The most of `/etc/hosts`: lists of names to block have some MiB.
const HOSTS_MOST: u64 = 16 << 20;

/// Of all configurations.
#[derive(Debug)]
pub(crate) struct SystemNames {
    /// `/etc/resolv.conf` and `/etc/hosts`, locked while they are read, which may take long.
    files: Mutex<[ReadFile; 2]>,
    known: Mutex<Arc<Known>>,
    /// Lent and never given away: it may be large, and goes when it is replaced.
    hosts: Mutex<Hosts>,
}

/// What `/etc/resolv.conf` said when it could be used last.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Servers, search domains and options. Errors: none could be used yet, and why.
    pub(crate) conf: Result<(ResolverConfig, ResolverOpts), String>,
}

impl Known {
    /// Other servers, with the search domains of the system.
    pub(crate) fn asking(&self, servers: Vec<NameServerConfig>) -> ResolverConfig {
        let (domain, search) = match &self.conf {
            Ok((conf, _)) => (conf.domain().cloned(), conf.search().to_vec()),
            Err(_) => (None, Vec::new()),
        };
        ResolverConfig::from_parts(domain, search, servers)
    }

    /// What is asked for in turn until one has addresses: a name without dots in the search domains, and each as it is.
    /// Errors: it is no name.
    pub(crate) fn candidates(&self, name: &str) -> Result<Vec<Name>, ProtoError> {
        let mut itself = Name::from_ascii(name)?;
        let mut all: Vec<Name> = Vec::new();
        if let (false, Ok((conf, _))) = (name.contains('.'), &self.conf) {
            for domain in conf.domain().into_iter().chain(conf.search()) {
                // others are too long together
                if let Ok(one) = itself.clone().append_domain(domain)
                    && !all.contains(&one)
                {
                    all.push(one);
                }
            }
        }
        itself.set_fqdn(true);
        if !all.contains(&itself) {
            all.push(itself);
        }
        Ok(all)
    }
}

#[derive(Debug)]
struct ReadFile {
    path: PathBuf,
    /// The most bytes that it may have.
    most: u64,
    /// Its stamp when it was read; `None`: it could not be.
    read: Option<FileStamp>,
    /// What was wrong the last time.
    error: Option<String>,
}

impl SystemNames {
    /// Reads both files.
    pub(crate) fn new(conf: &Path, hosts: &Path) -> Self {
        let known = Known { conf: Err(String::new()) };
        let names = Self {
            files: Mutex::new(files(conf, hosts)),
            known: Mutex::new(Arc::new(known)),
            hosts: Mutex::default(),
        };
        // who needs servers says that there are none
        if let (_, [_, Some(error)]) = names.look()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{error}; the names in it are not known");
        }
        names
    }

    /// What is known now; another one after each change of `/etc/resolv.conf`.
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&locked(&self.known))
    }

    /// What `/etc/hosts` says now.
    pub(crate) fn hosts<T>(&self, ask: impl FnOnce(&Hosts) -> T) -> T {
        ask(&locked(&self.hosts))
    }

    /// Reads again what has changed, or could not be read; what was known before stays where a file cannot be used. Call
    /// it from time to time. It takes as long as the disk.
    pub(crate) fn refresh(&self) {
        let (changed, wrong) = self.look();
        for error in wrong.into_iter().flatten() {
            tracing::warn!("{error}; what it said before holds");
        }
        if changed {
            tracing::info!(
                "reread the system's name servers and hosts because their files changed"
            );
        }
    }

    /// Whether there is something new, and what is newly wrong with each file.
    fn look(&self) -> (bool, [Option<io::Error>; 2]) {
        let mut files = locked(&self.files);
        let [conf, hosts] = &mut *files;
        let (conf, hosts) = (conf.news(conf_of), hosts.news(hosts_of));
        let (mut changed, mut wrong) = (false, [None, None]);
        match conf {
            Some(Ok(conf)) => {
                *locked(&self.known) = Arc::new(Known { conf: Ok(conf) });
                changed = true;
            }
            Some(Err(error)) => {
                if self.known().conf.is_err() {
                    *locked(&self.known) = Arc::new(Known { conf: Err(error.to_string()) });
                }
                wrong[0] = Some(error);
            }
            None => {}
        }
        match hosts {
            Some(Ok(hosts)) => {
                // those of before are freed here, when nobody waits for them
                let _before = std::mem::replace(&mut *locked(&self.hosts), hosts);
                changed = true;
            }
            Some(Err(error)) => wrong[1] = Some(error),
            None => {}
        }
        (changed, wrong)
    }

    /// From now on `resolv.conf` and `hosts` of a folder are looked at.
    #[cfg(test)]
    pub(crate) fn turn_to(&self, folder: &Path) {
        *locked(&self.files) = files(&folder.join("resolv.conf"), &folder.join("hosts"));
    }
}

fn files(conf: &Path, hosts: &Path) -> [ReadFile; 2] {
    let unread =
        |path: &Path, most| ReadFile { path: path.to_owned(), most, read: None, error: None };
    [unread(conf, CONF_MOST), unread(hosts, HOSTS_MOST)]
}

impl ReadFile {
    /// What it says, where it has changed. Errors, once each: it cannot be read, or used.
    fn news<T>(&mut self, parse: impl FnOnce(&[u8]) -> io::Result<T>) -> Option<io::Result<T>> {
        // before it is read: what is written meanwhile is read the next time
        let now = stamp(&self.path);
        if self.read == Some(now) {
            return None;
        }
        let bytes = self.bytes();
        self.read = bytes.is_ok().then_some(now);
        let news = bytes.and_then(|bytes| parse(&bytes)).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        });
        let error = news.as_ref().err().map(ToString::to_string);
        let said = error.is_some() && error == self.error;
        self.error = error;
        (!said).then_some(news)
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let file = File::open(&self.path)?;
        let (length, most) = (file.metadata()?.len(), self.most);
        let mut bytes = Vec::new();
        // some files do not tell their length
        if length > most || file.take(most + 1).read_to_end(&mut bytes)? as u64 > most {
            return Err(io::Error::other(format!("it is longer than {} KiB", most >> 10)));
        }
        Ok(bytes)
    }
}

/// Errors: it names no server.
fn conf_of(text: &[u8]) -> io::Result<(ResolverConfig, ResolverOpts)> {
    parse_resolv_conf(text).map_err(|error| io::Error::other(error.to_string()))
}

fn hosts_of(text: &[u8]) -> io::Result<Hosts> {
    let mut hosts = Hosts::default();
    hosts.read_hosts_conf(text)?;
    Ok(hosts)
}
