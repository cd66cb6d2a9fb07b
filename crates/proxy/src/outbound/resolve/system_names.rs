//! What `/etc/resolv.conf` and `/etc/hosts` say, read again when they change: networks come and go.

use crate::observe::flap_lines::FlapLines;
use crate::runtime::file_stamp::{FileStamp, stamp};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use hickory_resolver::Hosts;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The most bytes of `/etc/resolv.conf`.
const CONF_MOST: u64 = 64 << 10;
/// The most of `/etc/hosts`: lists of names to block have some MiB.
const HOSTS_MOST: u64 = 16 << 20;

/// Of all configurations.
#[derive(Debug)]
pub(crate) struct SystemNames {
    /// Locked while they are read, which may take long.
    files: Mutex<Files>,
    known: Mutex<Arc<Known>>,
    /// Lent and never given away: it may be large, and goes when it is replaced.
    hosts: Mutex<Hosts>,
}

/// What `/etc/resolv.conf` said when it could be used last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// With the options beside them. `None`: it has named none yet.
    pub(crate) servers: Option<(Vec<NameServerConfig>, ResolverOpts)>,
    domain: Option<Name>,
    search: Vec<Name>,
}

impl Known {
    /// With what a text of it says. Errors: it cannot be used, or says nothing any more; with it, also that it names no
    /// server any more, and those of before stay.
    fn read(&self, text: &[u8]) -> io::Result<(Self, io::Result<()>)> {
        // the library refuses one without servers, which may have search domains all the same
        let text = [text, b"\nnameserver 127.0.0.1\n"].concat();
        let (conf, options) =
            parse_resolv_conf(text).map_err(|error| io::Error::other(error.to_string()))?;
        let mut servers = conf.name_servers().to_vec();
        servers.pop();
        let mut new = Self {
            servers: self.servers.clone(),
            domain: conf.domain().cloned(),
            search: conf.search().to_vec(),
        };
        let none = || io::Error::other("it names no server");
        // it may be empty while it is written
        let knew = self.servers.is_some() || !self.search.is_empty();
        if servers.is_empty() && new.search.is_empty() && knew {
            return Err(none());
        }
        let mut said = Ok(());
        if !servers.is_empty() {
            new.servers = Some((servers, options));
        } else if self.servers.is_some() {
            said = Err(none());
        }
        Ok((new, said))
    }

    /// Servers, with the search domains of the system.
    pub(crate) fn asking(&self, servers: Vec<NameServerConfig>) -> ResolverConfig {
        ResolverConfig::from_parts(self.domain.clone(), self.search.clone(), servers)
    }

    /// What is asked for in turn until one has addresses: a name without dots in the search domains, and each as it is.
    /// Errors: it is no name.
    pub(crate) fn candidates(&self, name: &str) -> Result<Vec<Name>, ProtoError> {
        let mut itself = Name::from_ascii(name)?;
        let mut all: Vec<Name> = Vec::new();
        if !name.contains('.') {
            for domain in self.domain.iter().chain(&self.search) {
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
struct Files {
    /// `/etc/resolv.conf`.
    conf: ReadFile,
    /// `/etc/hosts`.
    hosts: ReadFile,
    /// Whether the settings want that.
    wants_hosts: bool,
}

#[derive(Debug)]
struct ReadFile {
    path: PathBuf,
    /// The most bytes that it may have.
    most: u64,
    /// Its stamp when it was read; `None`: it could not be.
    read: Option<FileStamp>,
    /// A hash of what was read last, and why that cannot be used, if so.
    said: Option<(u64, Option<String>)>,
    /// Whether something that it said could be used.
    known: bool,
    /// What is wrong now.
    error: Option<String>,
    lines: FlapLines,
}

impl SystemNames {
    /// Reads `resolv.conf`, and `hosts` where it is wanted.
    pub(crate) fn new(conf: &Path, hosts: &Path, wants_hosts: bool) -> Self {
        let names = Self {
            files: Mutex::new(Files::new(conf, hosts, wants_hosts)),
            known: Mutex::default(),
            hosts: Mutex::default(),
        };
        names.look(false);
        names
    }

    /// What is known now; another one after each change of `/etc/resolv.conf`.
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&locked(&self.known))
    }

    /// What `/etc/hosts` says now; nothing where it is not wanted.
    pub(crate) fn hosts<T>(&self, ask: impl FnOnce(&Hosts) -> T) -> T {
        ask(&locked(&self.hosts))
    }

    /// Reads again what has changed, or could not be read; what was known before stays where a file cannot be used. Call
    /// it from time to time. It takes as long as the disk.
    pub(crate) fn refresh(&self) {
        self.look(true);
    }

    /// Whether `/etc/hosts` is wanted from now on. If so, it is known at once, which takes as long as the disk. Else it goes
    /// with the next [`Self::refresh`], whose thread has time to free it.
    pub(crate) fn want_hosts(&self, wanted: bool) {
        locked(&self.files).wants_hosts = wanted;
        if wanted {
            self.refresh();
        }
    }

    /// `again`: the log says what is new, and not only what is wrong.
    fn look(&self, again: bool) {
        let mut files = locked(&self.files);
        let Files { conf, hosts, wants_hosts } = &mut *files;
        let mut new = None;
        let is_news = conf.look(|text| {
            let (read, said) = self.known().read(text)?;
            new = Some(read);
            said
        });
        conf.log(again && is_news);
        if let Some(new) = new {
            *locked(&self.known) = Arc::new(new);
        }
        let mut new = None;
        if *wants_hosts {
            let is_news = hosts.look(|text| {
                new = Some(hosts_of(text)?);
                Ok(())
            });
            hosts.log(again && is_news);
        } else if hosts.known {
            *hosts = ReadFile::new(&hosts.path, hosts.most);
            new = Some(Hosts::default());
        }
        if let Some(new) = new {
            // those of before are freed here, when nobody waits for them
            let _before = std::mem::replace(&mut *locked(&self.hosts), new);
        }
    }

    /// From now on `resolv.conf` and `hosts` of a folder are looked at.
    #[cfg(test)]
    pub(crate) fn turn_to(&self, folder: &Path) {
        let mut files = locked(&self.files);
        let [conf, hosts] = ["resolv.conf", "hosts"].map(|name| folder.join(name));
        *files = Files::new(&conf, &hosts, files.wants_hosts);
    }
}

impl Files {
    fn new(conf: &Path, hosts: &Path, wants_hosts: bool) -> Self {
        let (conf, hosts) = (ReadFile::new(conf, CONF_MOST), ReadFile::new(hosts, HOSTS_MOST));
        Self { conf, hosts, wants_hosts }
    }
}

impl ReadFile {
    fn new(path: &Path, most: u64) -> Self {
        Self {
            path: path.to_owned(),
            most,
            read: None,
            said: None,
            known: false,
            error: None,
            lines: FlapLines::default(),
        }
    }

    /// Has `take` use what it says, where that is new. Whether there is news: something new, or another error.
    fn look(&mut self, take: impl FnOnce(&[u8]) -> io::Result<()>) -> bool {
        // before it is read: what is written meanwhile is read the next time
        let now = stamp(&self.path);
        if self.read == Some(now) {
            return false;
        }
        let bytes = self.bytes();
        self.read = bytes.is_ok().then_some(now);
        let (mut is_new, before) = (false, self.error.take());
        self.error = match bytes {
            Ok(bytes) => {
                let hash = hash_of(&bytes);
                // it may be written again as it was, and some have another time at each look
                is_new = self.said.as_ref().is_none_or(|(said, _)| *said != hash);
                if is_new {
                    let wrong = take(&bytes).err().map(|error| error.to_string());
                    self.known |= wrong.is_none();
                    self.said = Some((hash, wrong));
                }
                self.said.as_ref().and_then(|(_, wrong)| wrong.clone())
            }
            // some machines never have it
            Err(error) if error.kind() == ErrorKind::NotFound && !self.known => None,
            Err(error) => Some(error.to_string()),
        };
        is_new || self.error != before
    }

    /// Says how it is where there is news, or where the log says the opposite.
    fn log(&mut self, is_news: bool) {
        let due = self.lines.next(clock::now(), self.error.is_some(), is_news);
        let Some(left_out) = due else { return };
        let path = self.path.display();
        match &self.error {
            None => tracing::info!(left_out, "read {path}, which is new or has changed"),
            Some(error) if self.known => {
                tracing::warn!(left_out, "{path}: {error}; what it said before holds");
            }
            Some(error) => tracing::warn!(left_out, "{path}: {error}; nothing of it is known"),
        }
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

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn hosts_of(text: &[u8]) -> io::Result<Hosts> {
    let mut hosts = Hosts::default();
    hosts.read_hosts_conf(text)?;
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::lines_of;
    use hickory_resolver::proto::op::Query;
    use hickory_resolver::proto::rr::RecordType;
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    /// Those of a folder, and the paths of both files.
    fn names(folder: &Path) -> (SystemNames, [PathBuf; 2]) {
        let files = ["resolv.conf", "hosts"].map(|name| folder.join(name));
        (SystemNames::new(&files[0], &files[1], true), files)
    }

    #[test]
    fn a_file_that_is_written_again_as_it_was_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (names, files) = names(folder.path());
        let texts = ["nameserver 192.0.2.1\n", "192.0.2.200 box\n"];
        let write = |seconds| {
            for (file, text) in files.iter().zip(texts) {
                fs::write(file, text).unwrap();
                let file = File::options().write(true).open(file).unwrap();
                file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            }
        };
        write(1_000);
        names.refresh();
        let known = names.known();
        assert!(known.servers.is_some());
        let refreshed = lines_of(|| {
            for seconds in [2_000, 3_000] {
                write(seconds);
                names.refresh();
            }
        });
        assert!(refreshed == 0 && Arc::ptr_eq(&known, &names.known()));
        // nor does it where it could not be read meanwhile
        fs::remove_file(&files[0]).unwrap();
        names.refresh();
        write(4_000);
        names.refresh();
        assert!(Arc::ptr_eq(&known, &names.known()));
    }

    #[test]
    fn hosts_are_read_where_they_are_wanted_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [conf, hosts] = ["resolv.conf", "hosts"].map(|name| folder.path().join(name));
        fs::write(&hosts, "192.0.2.200 box\n").unwrap();
        let names = SystemNames::new(&conf, &hosts, false);
        let query = Query::query(Name::from_ascii("box.").unwrap(), RecordType::A);
        let is_known = || names.hosts(|hosts| hosts.lookup_static_host(&query).is_some());
        names.refresh();
        assert!(!is_known() && locked(&names.files).hosts.said.is_none());
        names.want_hosts(true);
        assert!(is_known());
        names.want_hosts(false);
        names.refresh();
        assert!(!is_known());
        // the file has not changed meanwhile
        names.want_hosts(true);
        assert!(is_known());
    }

    #[test]
    fn search_domains_hold_where_no_server_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (names, [conf, _]) = names(folder.path());
        // the machine's name may have a domain, too
        let is_looked_for = |name: &str| {
            let candidates = names.known().candidates("box").unwrap();
            candidates.contains(&Name::from_ascii(name).unwrap())
        };
        fs::write(&conf, "search first.test").unwrap();
        assert_eq!(lines_of(|| names.refresh()), 1);
        assert!(is_looked_for("box.first.test.") && names.known().servers.is_none());
        fs::write(&conf, "").unwrap();
        names.refresh();
        assert!(is_looked_for("box.first.test."));
        fs::write(&conf, "search first.test\nnameserver 192.0.2.1").unwrap();
        names.refresh();
        // neither a file that is being written nor one that cannot be read changes anything
        fs::write(&conf, "nameserver 192.0.2.1").unwrap();
        names.refresh();
        let known = names.known();
        fs::write(&conf, "").unwrap();
        names.refresh();
        assert!(Arc::ptr_eq(&known, &names.known()) && known.servers.is_some());
        fs::write(&conf, "search first.test\nnameserver 192.0.2.1").unwrap();
        names.refresh();
        let known = names.known();
        for text in ["", "search a..b\nnameserver 192.0.2.2"] {
            fs::write(&conf, text).unwrap();
            names.refresh();
            assert!(Arc::ptr_eq(&known, &names.known()), "{text}");
        }
        fs::write(&conf, "search second.test").unwrap();
        names.refresh();
        assert!(is_looked_for("box.second.test.") && !is_looked_for("box.first.test."));
        assert_eq!(names.known().servers.as_ref().unwrap().0.len(), 1, "those of before stay");
    }

    #[test]
    fn files_that_flap_get_few_lines() {
        let folder = tempfile::tempdir().unwrap();
        let (names, files) = names(folder.path());
        let flaps = || {
            for n in 1..50 {
                fs::write(&files[0], "nameserver 192.0.2.1\n".repeat(n)).unwrap();
                names.refresh();
                fs::remove_file(&files[0]).unwrap();
                names.refresh();
            }
        };
        assert!((2..=4).contains(&lines_of(flaps)));
    }

    #[test]
    fn files_that_were_never_there_get_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let looks = || names(folder.path()).0.refresh();
        assert_eq!(lines_of(looks), 0);
    }
}
