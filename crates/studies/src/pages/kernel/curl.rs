//! A fetch by curl, and when it came to each step.

use ekiden_testbed::peers::{PeerHost, find};
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// A file takes no longer.
const PATIENCE: &str = "120";
const STEPS: &str =
    "%{http_code} %{size_download} %{time_appconnect} %{time_starttransfer} %{time_total}";

/// Seconds since before the connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fetch {
    pub(super) bytes: u64,
    /// TLS was done.
    pub(super) tls: f64,
    pub(super) first: f64,
    pub(super) last: f64,
}

/// Fetches a file of `host` by HTTPS through a proxy's CONNECT, or from the server itself. Errors: curl is not there
/// or failed, or the answer is not 200.
pub(super) fn curl(
    near: &PeerHost,
    proxy: Option<SocketAddr>,
    server: SocketAddr,
    (host, file): (&str, &str),
) -> io::Result<Fetch> {
    let program = find("curl", "curl").map_err(io::Error::other)?;
    let mut command = Command::new(program);
    command.args(["-q", "--silent", "--show-error", "--insecure", "--max-time", PATIENCE]);
    command.args(["--output", "/dev/null", "--write-out", STEPS]);
    match proxy {
        Some(proxy) => command.args(["--noproxy", "", "--proxy", &format!("http://{proxy}")]),
        None => {
            let known = format!("{host}:{}:{}", server.port(), server.ip());
            command.args(["--noproxy", "*", "--resolve", &known])
        }
    };
    command.arg(format!("https://{host}:{}/{file}", server.port())).stdin(Stdio::null());
    (near.prepare)(&mut command);
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(io::Error::other(text));
    }
    read(&String::from_utf8_lossy(&output.stdout))
}

fn read(text: &str) -> io::Result<Fetch> {
    let failed = || io::Error::other(format!("curl's answer is `{text}`"));
    let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match numbers.map_err(|_| failed())?[..] {
        [200.0, bytes, tls, first, last] => Ok(Fetch { bytes: bytes as u64, tls, first, last }),
        _ => Err(failed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_steps_of_a_fetch_and_refuses_other_answers() {
        let fetch = Fetch { bytes: 1_000, tls: 0.62, first: 1.25, last: 1.5 };
        assert_eq!(read("200 1000 0.620000 1.25 1.500000").unwrap(), fetch);
        for wrong in ["404 1000 0.6 1.2 1.5", "200 1000 0.6 1.2", "", "200 x 0 0 0"] {
            let report = read(wrong).unwrap_err().to_string();
            assert!(report.contains(wrong), "{report}");
        }
    }
}
