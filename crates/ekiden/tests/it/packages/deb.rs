//! The Debian package: its content, and what its scripts leave.

use super::{is_there, package, root, run, script, text, version};
use std::fs;
use std::process::Command;

#[test]
fn a_debian_package_has_all_that_a_service_needs() {
    let folder = tempfile::tempdir().unwrap();
    let deb = package(folder.path(), "arm64");
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(&deb).arg(name));
    assert_eq!(field("Version").trim(), version());
    assert_eq!(field("Architecture"), "arm64\n");
    assert_eq!(field("Depends").trim(), "");
    let tree = folder.path().join("tree");
    run(Command::new("dpkg-deb").arg("--raw-extract").args([&deb, &tree]));
    for (file, part) in [
        ("DEBIAN/conffiles", "/etc/ekiden/config.toml"),
        ("DEBIAN/conffiles", "/etc/logrotate.d/ekiden"),
        ("etc/ekiden/config.toml", "127.0.0.1:3128"),
        ("etc/logrotate.d/ekiden", "systemctl reload ekiden"),
        ("usr/lib/systemd/system/ekiden.service", "ExecStart=/usr/bin/ekiden serve"),
        ("usr/lib/sysusers.d/ekiden.conf", "u ekiden "),
        ("usr/lib/tmpfiles.d/ekiden.conf", "/var/lib/ekiden"),
        ("usr/share/bash-completion/completions/ekiden", "allow-destination"),
        ("usr/share/zsh/vendor-completions/_ekiden", "#compdef ekiden"),
        ("usr/share/fish/vendor_completions.d/ekiden.fish", "complete -c ekiden"),
        ("usr/share/doc/ekiden/copyright", "Permission is hereby granted"),
        ("usr/share/doc/ekiden/examples/config.example.toml", "[tunnel]"),
    ] {
        let found = fs::read_to_string(tree.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(found.contains(part), "{file}: no {part}");
    }
    for file in ["man/man1/ekiden.1.gz", "doc/ekiden/changelog.gz", "doc/ekiden/THIRD-PARTY.gz"] {
        assert!(tree.join("usr/share").join(file).exists(), "{file}");
    }
    let sums = ["--check", "--strict", "--quiet", "DEBIAN/md5sums"];
    run(Command::new("md5sum").args(sums).current_dir(&tree));
    // owned by root, and the same bytes from the same input
    let list = run(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    assert!(list.lines().all(|line| line.contains(" root/root ")), "{list}");
    let first = fs::read(&deb).unwrap();
    assert!(first == fs::read(package(folder.path(), "arm64")).unwrap(), "differs");
}

/// Installed, upgraded, removed and purged by dpkg over a copy of this machine's /usr, in namespaces of its own.
#[test]
fn a_purged_package_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        println!("SKIPPED: only root can install packages");
        return;
    }
    if !is_there("systemd-sysusers") || !is_there("systemd-tmpfiles") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let architecture = run(Command::new("dpkg").arg("--print-architecture"));
    let deb = package(folder.path(), architecture.trim());
    let script = root().join("crates/ekiden/tests/it/packages/purge.sh");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "sh"]).arg(script).arg(deb).arg(folder.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// OUT names a folder that is replaced as a whole.
#[test]
fn packages_replace_nothing_but_packages() {
    if !is_there("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine");
    fs::write(&mine, "kept").unwrap();
    // as of another program
    for sums in ["", "0000  other_1.0.tar\n"] {
        fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
        for out in [folder.path(), &mine] {
            let mut make = script("make.sh", [""; 0]);
            let made = make.env("OUT", out).env("PROGRAM", "/bin/true").output().unwrap();
            assert!(!made.status.success(), "{}", text(&made));
            assert!(text(&made).contains("name an empty folder by OUT"), "{}", text(&made));
        }
        assert_eq!(fs::read_to_string(&mine).unwrap(), "kept");
    }
}
