//! A relay of accounts: its folder, and the commands that change its accounts.
#![allow(dead_code)] // benches use a part of it

use ekiden_testkit::{Daemon, Home};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

/// The folder of a relay with accounts.
pub(crate) struct Accounts(Arc<Home>);

impl Accounts {
    pub(crate) fn new() -> Self {
        Self::with("[accounts]\nenabled = true\n")
    }

    pub(crate) fn with(config: &str) -> Self {
        // another build of it, for benches that compare two
        let other = std::env::var_os("EKIDEN_BIN");
        let program = other.map_or_else(|| env!("CARGO_BIN_EXE_ekiden").into(), PathBuf::from);
        Self(Home::new(program, config))
    }

    /// What `ekiden account …` printed; it succeeded.
    pub(crate) fn account(&self, args: &[&str], input: &str) -> String {
        let output = self.run_with(&[&["account"], args].concat(), input);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of `ekiden account …`, which failed with code 1.
    pub(crate) fn account_fails(&self, args: &[&str], input: &str) -> String {
        let output = self.run_with(&[&["account"], args].concat(), input);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn serve(&self) -> Daemon {
        let args = ["serve", "--listen", "127.0.0.1:0", "--allow-destination", "127.0.0.0/8"];
        self.0.serve_by(self.command(&args))
    }
}

impl Deref for Accounts {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

/// "anna" with "right password".
pub(crate) const ANNA: &str = "Proxy-Authorization: Basic YW5uYTpyaWdodCBwYXNzd29yZA==\r\n";
