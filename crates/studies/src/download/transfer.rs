//! One download by curl, and its figures.

use ekiden_emulator::topology::Host;
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::units::Span;
use ekiden_testbed::peers::{Peer, Protocol, find};
use serde::Deserialize;
use std::process::{Command, Stdio};

/// curl's exit code for `--max-time`.
const CUT: i64 = 28;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Transfer {
    /// Bytes of the file that came.
    #[serde(rename = "size_download")]
    pub(crate) bytes: f64,
    /// Seconds from the beginning to the last byte.
    #[serde(rename = "time_total")]
    pub(crate) seconds: f64,
    /// Seconds until the connection to the first machine stood.
    #[serde(rename = "time_connect")]
    pub(crate) connect: f64,
    /// Seconds until the first byte of the answer.
    #[serde(rename = "time_starttransfer")]
    pub(crate) first_byte: f64,
    #[serde(rename = "http_code")]
    status: u16,
    exitcode: i64,
    #[serde(default)]
    errormsg: Option<String>,
}

impl Transfer {
    /// Megabits per second, from the beginning to the end.
    pub(crate) fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes * 8.0 / self.seconds / 1e6 } else { 0.0 }
    }

    pub(crate) const fn was_cut(&self) -> bool {
        self.exitcode == CUT
    }
}

/// Downloads `url` on `client`, through `relay` if there is one; fails with fewer than `expected` bytes unless
/// it was cut.
pub(crate) fn download(
    client: &Host,
    relay: Option<&Peer>,
    url: &str,
    expected: u64,
    cut: Span,
) -> Result<Transfer, EngineError> {
    let mut command = Command::new(find("curl", "curl")?);
    // -q first: no settings of the user's
    command.args(["-q", "-sS", "-o", "/dev/null", "-w", "%{json}", "--max-time"]);
    command.arg(format!("{:.3}", cut.as_secs_f64()));
    match relay.map(|relay| (&relay.protocol, relay.address)) {
        None => command.args(["--noproxy", "*"]),
        Some((Protocol::Socks5, address)) => command.args(["-x", &format!("socks5://{address}")]),
        Some((_, address)) => command.args(["-x", &format!("http://{address}")]),
    };
    command.arg(url).stdin(Stdio::null());
    let output = client.place(&mut command).and_then(|()| command.output()).during("curl")?;
    let transfer: Transfer = serde_json::from_slice(&output.stdout).map_err(|error| {
        let message = String::from_utf8_lossy(&output.stderr);
        EngineError(format!("curl ended with {}: {}: {error}", output.status, message.trim()))
    })?;
    check(&transfer, expected)?;
    Ok(transfer)
}

fn check(transfer: &Transfer, expected: u64) -> Result<(), EngineError> {
    let message = transfer.errormsg.as_deref().unwrap_or_default();
    if transfer.exitcode != 0 && !transfer.was_cut() {
        return Err(EngineError(format!("curl ended with {}: {message}", transfer.exitcode)));
    }
    // 0: cut before the answer began
    if transfer.status != 200 && !(transfer.was_cut() && transfer.status == 0) {
        return Err(EngineError(format!("the answer was {} instead of 200", transfer.status)));
    }
    if !transfer.was_cut() && transfer.bytes as u64 != expected {
        let came = transfer.bytes;
        return Err(EngineError(format!("{came} bytes came instead of {expected}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(bytes: u64, status: u16, exitcode: i64) -> Transfer {
        let text = format!(
            r#"{{"size_download":{bytes},"time_total":2.0,"time_connect":0.05,"time_starttransfer":0.1,
                "http_code":{status},"exitcode":{exitcode},"errormsg":null,"more":1}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn counts_a_cut_transfer_by_its_bytes() {
        let cut = transfer(1_000_000, 200, 28);
        assert!(cut.was_cut() && check(&cut, 2_000_000).is_ok());
        assert!((cut.goodput() - 4.0).abs() < 1e-9);
        assert!(check(&transfer(0, 0, 28), 1).is_ok());
    }

    #[test]
    fn refuses_a_transfer_of_another_size() {
        assert!(check(&transfer(10, 200, 0), 10).is_ok());
        for (wrong, word) in [
            (transfer(9, 200, 0), "9 bytes"),
            (transfer(10, 503, 0), "503"),
            (transfer(9, 200, 18), "ended with 18"),
        ] {
            let message = check(&wrong, 10).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
