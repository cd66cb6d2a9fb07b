//! The packages that `make packages` and `make repository` write, made of a small program. `make packages-test` tries the
//! real ones on a machine of their own.

mod deb;
mod image;
mod peers;
mod repository;
mod service;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Whether a program is there. If not, says so; in CI it must be.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{program} is missing: scripts/peers.sh");
        println!("SKIPPED: {program} is not installed");
    }
    found
}

/// Runs a command; panics with its output if it fails.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A script of `scripts/packages`, dated.
fn script<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> Command {
    let path = root().join("scripts/packages").join(name);
    let interpreter = if name.ends_with(".py") { "python3" } else { "sh" };
    let mut command = Command::new(interpreter);
    command.arg(path).args(args).env("SOURCE_DATE_EPOCH", "1700000000").env("COMPRESS", "none");
    command
}

/// A package of `/bin/true` in this folder, by its architecture.
fn package(folder: &Path, architecture: &str) -> PathBuf {
    let out = folder.join(format!("ekiden_{}_{architecture}.deb", version()));
    let notices = folder.join("notices");
    fs::write(&notices, "none\n").unwrap();
    let program = Path::new("/bin/true");
    let helper = Path::new(env!("CARGO_BIN_EXE_ekiden"));
    run(&mut script(
        "deb.sh",
        [program, Path::new(architecture), helper, notices.as_path(), out.as_path()],
    ));
    out
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}
