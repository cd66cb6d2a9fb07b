//! A folder with a configuration and everything that one daemon keeps.

use crate::Daemon;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A folder with `ekiden/config.toml`, the daemon's socket, its `state` and its `log`. Removed at the end.
#[derive(Debug)]
pub struct Home {
    folder: TempDir,
    program: PathBuf,
}

impl Home {
    /// A folder for the daemon `program`, with this configuration; see [`Home::configure`].
    pub fn new(program: impl Into<PathBuf>, config: &str) -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ekiden")).unwrap();
        let home = Self { folder, program: program.into() };
        home.configure(config);
        Arc::new(home)
    }

    /// Writes the configuration; `DIR` in it becomes the folder's path. An empty one means the defaults.
    pub fn configure(&self, config: &str) {
        let config = if config.is_empty() { "# the defaults\n" } else { config };
        let config = config.replace("DIR", &self.path().display().to_string());
        fs::write(self.config(), config).unwrap();
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The configuration's file.
    pub fn config(&self) -> PathBuf {
        self.path().join("ekiden/config.toml")
    }

    /// The content of a file below `state`.
    pub fn state(&self, name: &str) -> String {
        fs::read_to_string(self.path().join("state").join(name)).unwrap()
    }

    /// What daemons in this folder logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap()
    }

    /// A command that finds this folder's configuration, socket and state, and no others.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(Command::new(&self.program), args)
    }

    /// The same, where `program` names the command in its own way (`setpriv … ekiden`).
    pub fn command_of(&self, mut program: Command, args: &[&str]) -> Command {
        let folder = self.path();
        program.env("XDG_CONFIG_HOME", folder).env("XDG_RUNTIME_DIR", folder);
        // the one that counts for root, too
        program.env("STATE_DIRECTORY", folder.join("state"));
        program.env_remove("RUNTIME_DIRECTORY").env_remove("EKIDEN_LOG");
        program.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    }

    /// Runs a command that ends by itself.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, "")
    }

    /// The same, with `input` on its standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(args).spawn().unwrap();
        // a command that refuses its arguments reads nothing
        let _closed = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What a command printed. Panics if it fails.
    pub fn printed(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The daemon's status, if one answers.
    pub fn status(&self) -> Option<serde_json::Value> {
        // without it, a daemon of the whole machine would answer while this one begins
        let socket = self.path().join("ekiden.sock");
        let asked = self.run(&["status", "--json", "--socket", socket.to_str()?]);
        serde_json::from_slice(&asked.stdout).ok()
    }

    /// Starts the daemon and waits until it answers.
    pub fn serve(self: &Arc<Self>) -> Daemon {
        self.serve_by(self.command(&["serve", "--listen", "127.0.0.1:0"]))
    }

    /// The same by a command of one's own; its standard error is appended to the log.
    pub fn serve_by(self: &Arc<Self>, mut command: Command) -> Daemon {
        let log = OpenOptions::new().create(true).append(true).open(self.path().join("log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
        Daemon::spawn(Arc::clone(self), command)
    }
}
