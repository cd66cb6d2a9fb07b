//! The two emulators: the same link, the same command at its near end and the same at its far end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who emulates.
#[derive(Debug, Clone)]
pub(crate) enum Contestant {
    /// `ekiden link`.
    Ekiden(PathBuf),
    /// `rattan link`.
    Rattan(PathBuf),
}

/// A link, the way up with all of it, the way down with its delay alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setting {
    /// One way.
    pub(crate) delay_ms: u32,
    /// Bits per second; 0 for as fast as can be.
    pub(crate) rate: u64,
    /// 0 … 1.
    pub(crate) loss: f64,
    /// Largest packet.
    pub(crate) mtu: u32,
    /// Whether TCP may hand over super-packets.
    pub(crate) super_packets: bool,
    /// For what chooses the lost packets, where it can be told.
    pub(crate) seed: usize,
}

impl Setting {
    /// What may wait: the rate's 100 ms, and ten full packets at least, for both alike.
    fn queue(&self) -> u64 {
        (self.rate / 80).max(15_000)
    }
}

/// Large enough for 2.5 Gbit/s at 50 ms several times over; a namespace's own.
const BUFFERS: &str = "echo '4096 131072 134217728' > /proc/sys/net/ipv4/tcp_rmem; \
    echo '4096 16384 134217728' > /proc/sys/net/ipv4/tcp_wmem; \
    echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save;";

impl Contestant {
    pub(crate) fn ekiden(binary: &Path) -> Self {
        Self::Ekiden(binary.to_owned())
    }

    pub(crate) fn rattan(binary: &Path) -> Self {
        Self::Rattan(binary.to_owned())
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ekiden(_) => "ekiden",
            Self::Rattan(_) => "rattan",
        }
    }

    pub(crate) const fn is_ekiden(&self) -> bool {
        matches!(self, Self::Ekiden(_))
    }

    /// What it says of itself.
    pub(crate) fn version(&self) -> Result<String, String> {
        let (Self::Ekiden(binary) | Self::Rattan(binary)) = self;
        let output = Command::new(binary).arg("--version").output();
        let output = output.map_err(|e| format!("{}: {e}", binary.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// The emulator with shell command `near` at one end and `far` at the other; in both, `$FAR` is
    /// the far end's address. `report` is where ekiden's own goes. Both have large TCP buffers, and at
    /// the near end `cubic` by route.
    pub(crate) fn command(
        &self,
        setting: &Setting,
        near: &str,
        far: &str,
        report: &Path,
    ) -> Command {
        match self {
            Self::Ekiden(binary) => {
                let mut command = Command::new(binary);
                command
                    .args(["link", "--quiet", "--congestion", "cubic"])
                    .arg(format!("--json={}", report.display()))
                    .args(["--delay", &format!("{}ms", setting.delay_ms)])
                    .args(["--mtu", &setting.mtu.to_string()])
                    .args(["--seed", &(setting.seed + 1).to_string()])
                    .args(["--far", &format!("{BUFFERS} exec {far}")]);
                let mut up = Vec::new();
                if setting.rate > 0 {
                    up.push(format!("rate={}bit/s,queue={}B", setting.rate, setting.queue()));
                }
                if setting.loss > 0.0 {
                    up.push(format!("loss={}%", setting.loss * 100.0));
                }
                if !up.is_empty() {
                    command.args(["--up", &up.join(",")]);
                }
                if setting.super_packets {
                    command.arg("--super-packets");
                }
                command.args(["--", "sh", "-c"]).arg(format!("FAR=$EKIDEN_FAR; {BUFFERS} {near}"));
                command
            }
            Self::Rattan(binary) => {
                let mut link = vec![
                    format!("--uplink-delay {}ms", setting.delay_ms),
                    format!("--downlink-delay {}ms", setting.delay_ms),
                ];
                if setting.rate > 0 {
                    let queue = format!("{{\"byte_limit\":{}}}", setting.queue());
                    link.push(format!("--uplink-bandwidth {}bps", setting.rate));
                    link.push(format!("--uplink-queue droptail --uplink-queue-args '{queue}'"));
                }
                if setting.loss > 0.0 {
                    link.push(format!("--uplink-loss {}", setting.loss));
                }
                // its far end is the machine it is started on, so that is given to it new; its routes
                // are set again with cubic, since a socket that begins with bbr stays paced
                let routes = "FAR=$RATTAN_BASE; DEV=$(ip -o link | grep -o 'vL1[^@]*'); \
                    ip route replace $FAR dev $DEV congctl cubic && \
                    ip route replace default via $FAR dev $DEV congctl cubic || exit 9;";
                let near = quoted(&format!("{routes} {BUFFERS} {near}"));
                let script = format!(
                    "ip link set lo up; {BUFFERS} {far} & {} link {} -- sh -c {near}; code=$?; \
                     kill $! 2>/dev/null; wait; exit $code",
                    quoted(&binary.display().to_string()),
                    link.join(" "),
                );
                let mut command = Command::new("unshare");
                command.args(["--net", "sh", "-c", &script]).env("RUST_LOG", "off");
                command
            }
        }
    }

    /// Starts it, with nothing to say.
    pub(crate) fn start(
        &self,
        mut command: Command,
        log: std::fs::File,
    ) -> std::io::Result<std::process::Child> {
        let error = log.try_clone()?;
        command.stdin(Stdio::null()).stdout(log).stderr(error).spawn()
    }

    /// The name of the process that emulates.
    pub(crate) fn process(&self) -> &OsStr {
        let (Self::Ekiden(binary) | Self::Rattan(binary)) = self;
        binary.file_name().unwrap_or_default()
    }
}

/// For a shell, as one word.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
