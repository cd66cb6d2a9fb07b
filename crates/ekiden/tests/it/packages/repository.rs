//! A signed repository, as apt reads it.

use super::{is_there, package, run, script, text, version};
use std::fs;
use std::path::Path;
use std::process::Command;

const KEY: &str = "test@ekiden.invalid";

/// A folder of gpg with a key; gpg-agent ends with it.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        let key = ["--batch", "--quiet", "--passphrase", "", "--quick-generate-key"];
        run(keys.with(Command::new("gpg").args(key)).args([KEY, "ed25519", "sign", "never"]));
        keys
    }

    fn with<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("GNUPGHOME", self.0.path())
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ended = self.with(Command::new("gpgconf").args(["--kill", "gpg-agent"])).status();
    }
}

fn apt(folder: &Path, sources: &Path) -> Command {
    let mut command = Command::new("apt-get");
    for (key, value) in [("Dir::State", "state"), ("Dir::Cache", "cache"), ("Dir::Log", "log")] {
        let at = folder.join(value);
        fs::create_dir_all(at.join("lists/partial")).unwrap();
        fs::create_dir_all(at.join("archives/partial")).unwrap();
        command.arg("-o").arg(format!("{key}={}", at.display()));
    }
    let status = folder.join("status");
    fs::write(&status, "").unwrap();
    command.arg("-o").arg(format!("Dir::State::status={}", status.display()));
    command.arg("-o").arg(format!("Dir::Etc::sourcelist={}", sources.display()));
    command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "Dir::Etc::parts=-"]);
    // its own user cannot read a private folder; any error is one
    command.args(["-o", "APT::Sandbox::User=", "-o", "APT::Update::Error-Mode=any"]);
    command.args(["-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64"]);
    command
}

#[test]
fn apt_takes_a_signed_repository_and_no_other() {
    if !is_there("gpg") || !is_there("gpg-agent") || !is_there("apt-get") {
        return;
    }
    let (keys, folder) = (Keys::new(), tempfile::tempdir().unwrap());
    let repository = folder.path().join("repository");
    let packages = ["amd64", "arm64"].map(|one| package(folder.path(), one));
    let make = |key: &str, packages: &[&Path]| {
        let args =
            [Path::new(key), repository.as_path()].into_iter().chain(packages.iter().copied());
        keys.with(&mut script("repository.py", args)).output().unwrap()
    };
    let unknown = make("nobody@ekiden.invalid", &[&packages[0]]);
    assert!(!unknown.status.success() && !repository.exists(), "{}", text(&unknown));
    // one first, the other later
    for one in &packages {
        let made = make(KEY, &[one]);
        assert!(made.status.success(), "{}", text(&made));
    }
    let sources = folder.path().join("sources.list");
    let (key, at) = (repository.join("ekiden.gpg"), repository.display());
    fs::write(&sources, format!("deb [signed-by={}] file:{at} stable main\n", key.display()))
        .unwrap();
    run(apt(folder.path(), &sources).arg("update"));
    let found =
        run(apt(folder.path(), &sources).args(["install", "--print-uris", "-qq", "ekiden"]));
    assert!(found.contains(&format!("ekiden_{}_amd64.deb", version())), "{found}");
    let index = fs::read_to_string(repository.join("dists/stable/main/binary-arm64/Packages"));
    assert!(index.unwrap().contains("Architecture: arm64\n"));

    // a version that is published stays as it is
    let before = fs::read(repository.join("dists/stable/InRelease")).unwrap();
    let mut other = fs::read(&packages[0]).unwrap();
    let changed = package(folder.path(), "arm64");
    fs::rename(&changed, folder.path().join("other.deb")).unwrap();
    other.push(0);
    fs::write(&packages[0], other).unwrap();
    let refused = make(KEY, &[&packages[0]]);
    assert!(text(&refused).contains("raise the version"), "{}", text(&refused));
    assert_eq!(fs::read(repository.join("dists/stable/InRelease")).unwrap(), before);

    let forged = String::from_utf8(before).unwrap().replace("Label: Ekiden", "Label: Akiden");
    fs::write(repository.join("dists/stable/InRelease"), forged).unwrap();
    fs::remove_file(repository.join("dists/stable/Release.gpg")).unwrap();
    let answer = apt(folder.path(), &sources).arg("update").output().unwrap();
    assert!(!answer.status.success(), "{}", text(&answer));
}
