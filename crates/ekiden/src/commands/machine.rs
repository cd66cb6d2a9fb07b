//! What a configuration asks of this machine and is not there, as `ekiden check` tells it.

use ekiden_config::{self as config, Loaded, Severity};
use ekiden_linux::bpf::Control;
use ekiden_linux::sockets::key::Key;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_proxy::CertificateFiles;
use ekiden_proxy::settings::AccessLog;
use rustix::fs::{Access, access};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::Path;

/// Adds what is missing as warnings: the file may be another machine's, or the daemon's user have other rights.
/// A certificate that is read and cannot be used is an error on every machine.
pub(super) fn judge(loaded: &mut Loaded) {
    certificate(loaded);
    folders(loaded);
    addresses(loaded);
    congestion(loaded);
}

const READABLE: &str = "a PEM file, readable by the user ekiden runs as";
const WRITABLE: &str = "it must be there, and writable for the user ekiden runs as";

fn certificate(loaded: &mut Loaded) {
    let tls = loaded.reading.draft.tls.clone();
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return };
    let mut closed = false;
    for (path, file) in [("tls.certificate", certificate), ("tls.key", key)] {
        if let Err(error) = File::open(file) {
            closed = true;
            let what = format!("on this machine, {} cannot be read: {error}", file.display());
            loaded.add(Severity::Warning, path, what, READABLE);
        }
    }
    if !closed && let Err(why) = CertificateFiles::read(certificate, key) {
        loaded.add(Severity::Error, "tls.certificate", why, "");
    }
}

fn folders(loaded: &mut Loaded) {
    let draft = &loaded.reading.draft;
    let mut found = Vec::new();
    for (key, folder) in [
        ("tunnel.state", &draft.tunnel.state),
        ("accounts.state", &draft.accounts.state),
        ("acme.state", &draft.acme.state),
        ("cache.directory", &draft.cache.directory),
    ] {
        // a folder that is not there is made
        let there = folder.as_ref().and_then(|path| path.ancestors().find(|path| path.exists()));
        found.push((key, there.and_then(|there| unwritable(there, true))));
    }
    if let AccessLog::File(file) = &draft.log.access {
        let why = match (file.exists(), file.parent()) {
            (false, Some(folder)) => unwritable(folder, true),
            _ => unwritable(file, false),
        };
        found.push(("log.access", why));
    }
    for (key, why) in found {
        if let Some(why) = why {
            loaded.add(Severity::Warning, key, format!("on this machine, {why}"), WRITABLE);
        }
    }
}

/// Why this user cannot write a file, or files in a folder.
fn unwritable(path: &Path, is_folder: bool) -> Option<String> {
    let shown = path.display();
    let needed = match is_folder {
        true => Access::WRITE_OK | Access::EXEC_OK,
        false => Access::WRITE_OK,
    };
    match access(path, needed) {
        Err(error) => Some(format!("{shown} cannot be written by this user: {error}")),
        Ok(()) if is_folder != path.is_dir() => {
            Some(format!("{shown} is {} folder", if is_folder { "no" } else { "a" }))
        }
        Ok(()) => None,
    }
}

fn addresses(loaded: &mut Loaded) {
    let mut seen = BTreeSet::new();
    for one in config::listeners(&loaded.reading.draft) {
        let mut at = one.at;
        at.set_port(0);
        if !seen.insert(at.ip()) {
            continue;
        }
        // where the kernel lets programs bind what is not there, it serves
        if UdpSocket::bind(at).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable) {
            let what = format!("on this machine, no device has the address {}", at.ip());
            let hint = "`ip address` lists those that it has";
            loaded.add(Severity::Warning, &one.path, what, hint);
        }
    }
}

fn congestion(loaded: &mut Loaded) {
    let mut found = Vec::new();
    for (name, leg) in &loaded.reading.draft.legs {
        let mut congestion = leg.leg.socket.congestion.clone();
        // the daemon loads Ekiden's own, and names that nobody has are told already
        congestion.retain(|word| {
            let own = Control::ALL.iter().any(|control| control.word() == word);
            let problems = &loaded.reading.problems;
            let told = problems.iter().any(|one| one.message.contains(&format!("named `{word}`")));
            !own && Control::called(word).is_none() && !told
        });
        let options = SocketOptions { congestion, ..SocketOptions::default() };
        let Ok((_, outcomes)) = options.new_stream_socket(false, Stage::Listening) else {
            continue;
        };
        for outcome in outcomes.in_words(&options) {
            if outcome.option == Key::Congestion.name()
                && let Some(why) = outcome.refused
            {
                let what = format!("on this machine, `{}` is not to be had: {why}", outcome.asked);
                found.push((format!("leg.{name}.congestion"), what));
            }
        }
    }
    for (path, what) in found {
        let hint = "the next of the list, or the kernel's default, serves";
        loaded.add(Severity::Warning, &path, what, hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn judged(text: &str) -> (String, bool) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let text = text.replace("DIR", &folder.path().display().to_string());
        fs::write(&file, text).unwrap();
        fs::write(folder.path().join("a-file"), "nothing").unwrap();
        let mut loaded = config::load(Some(&file), &config::Overrides::default());
        judge(&mut loaded);
        (config::render_all(&loaded.reading.problems), loaded.reading.is_usable())
    }

    #[test]
    fn a_check_tells_of_what_this_machine_has_not_and_where_it_is_asked_for() {
        for (text, place, why, usable) in [
            (
                "[tls]\ncertificate = \"/none/c\"\nkey = \"/none/k\"\n",
                "config.toml:3:7",
                "on this machine, /none/k cannot be read",
                true,
            ),
            (
                "[tls]\ncertificate = \"DIR/a-file\"\nkey = \"DIR/a-file\"\n",
                "config.toml:2:15",
                "contains no certificate",
                false,
            ),
            ("[log]\naccess = \"/none/access.log\"\n", "config.toml:2:10", "/none cannot be", true),
            ("[tunnel]\nstate = \"DIR/a-file/state\"\n", "config.toml:2:9", "a-file ", true),
            (
                "listen = [\"127.0.0.1:3128\",\n  \"192.0.2.77:3128\"]\n[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"allow\"\n",
                "config.toml:2:3",
                "no device has the address 192.0.2.77",
                true,
            ),
        ] {
            let (found, is_usable) = judged(text);
            assert!(found.contains(place) && found.contains(why), "{text}: {found}");
            assert_eq!(is_usable, usable, "{text}: {found}");
        }
        let (found, _) = judged("[management]\nlisten = \"192.0.2.77:9128\"\ncleartext = true\n");
        assert!(found.contains("config.toml:2:10") && found.contains("192.0.2.77"), "{found}");
        let fine = "[log]\naccess = \"DIR/access.log\"\n[accounts]\nstate = \"DIR/new/state\"\n\
            [leg.direct]\ncongestion = [\"reno\", \"nv\"]\n";
        assert_eq!(judged(fine).0, "");
    }
}
