//! The same program again, in a network namespace of its own: ports and TIME_WAIT are nobody else's,
//! and its loopback route names the congestion control that all sockets on it get by default.

use std::process::{Command, ExitCode};

const INSIDE: &str = "EKIDEN_BENCH_NAMESPACE";

pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Starts ourselves again inside, and ends as it ends.
pub(crate) fn run_inside(congestion: &str) -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Both local routes: 127.0.0.1 has one of its own beside 127.0.0.0/8. Not the sysctl, which
    // containers often keep from being written.
    let prepare = "ip link set lo up || exit
        for net in 127.0.0.0/8 127.0.0.1; do
            ip route replace local $net dev lo congctl \"$1\" table local || exit
        done
        shift; exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "sh", "-c", prepare, "sh", congestion])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .map_err(|e| format!("unshare, for a network namespace: {e}"))?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}
