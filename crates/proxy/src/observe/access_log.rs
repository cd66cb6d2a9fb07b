//! The access log: a JSON line for each request and tunnel, written at its end. It never holds
//! credentials: no `Authorization`, no user info, no query string.

use crate::observe::log_throttle::LogThrottle;
use crate::settings::AccessLog as Setting;
use ekiden_linux::host::state_files;
use ekiden_linux::host::sync::locked;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;

/// Which end broke off a transfer that had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CutBy {
    Client,
    /// Or an upstream proxy.
    Destination,
    /// A limit of this relay or of the account.
    Relay,
}

#[derive(Debug, Serialize)]
pub(crate) struct Record<'a> {
    pub(crate) time: String,
    pub(crate) connection: u64,
    pub(crate) client: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<&'a str>,
    pub(crate) protocol: &'static str,
    pub(crate) method: Option<&'a str>,
    /// `host:port`, or the URL without its query.
    pub(crate) target: Option<&'a str>,
    /// Names of the upstream proxies.
    pub(crate) through: &'a [String],
    /// HTTP status to the client; for SOCKS the reply code.
    pub(crate) status: Option<u16>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) seconds: f64,
    /// Absent where the transfer is whole, or had not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_by: Option<CutBy>,
    /// How it ended, or why it failed.
    pub(crate) result: &'a str,
}

/// Connections share the sink, so that records after a reopen go to the new file.
#[derive(Debug)]
pub(crate) struct AccessLog(RwLock<Sink>);

#[derive(Debug)]
enum Sink {
    Off,
    Stderr,
    File(Mutex<File>),
}

impl AccessLog {
    /// Fails when the file cannot be opened for appending.
    pub(crate) fn open(setting: &Setting) -> io::Result<Self> {
        Ok(Self(RwLock::new(match setting {
            Setting::Off => Sink::Off,
            Setting::Stderr => Sink::Stderr,
            Setting::File(path) => Sink::File(Mutex::new(state_files::append_log(path)?)),
        })))
    }

    /// Records go to the sink of `other` from now on.
    pub(crate) fn replace(&self, other: Self) {
        let other = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = other;
    }

    fn sink(&self) -> RwLockReadGuard<'_, Sink> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(*self.sink(), Sink::Off)
    }

    pub(crate) fn write(&self, record: &Record<'_>) {
        let Ok(mut line) = serde_json::to_string(record) else { return };
        line.push('\n');
        // one write per line, so that lines of several processes do not mix
        let wrote = match &*self.sink() {
            Sink::Off => Ok(()),
            Sink::Stderr => io::stderr().lock().write_all(line.as_bytes()),
            Sink::File(file) => locked(file).write_all(line.as_bytes()),
        };
        static LOGGED: LogThrottle = LogThrottle::new();
        if let Err(error) = wrote
            && LOGGED.is_due()
        {
            tracing::error!(%error, "cannot write the access log; check its file and its disk");
        }
    }
}

pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
