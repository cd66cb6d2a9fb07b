//! The command at the link's near end.

use super::shell;
use ekiden_emulator::topology::Host;
use ekiden_linux::host::signals::Held;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks whether the command has ended, when no signal comes.
const LOOK: Duration = Duration::from_millis(20);

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended(ExitStatus);

impl Ended {
    /// Its exit code, or 128 and the number of the signal that ended it.
    pub(super) fn code(self) -> u8 {
        let code = self.0.code().or_else(|| self.0.signal().map(|signal| 128 + signal));
        u8::try_from(code.unwrap_or(1)).unwrap_or(1)
    }
}

/// Runs `command`, or for want of one a shell, on `near`, and waits until it ends. A terminal's keys
/// reach it; a signal to end that reaches this program alone is passed on.
pub(super) fn run(
    command: &[OsString],
    near: &Host,
    far: Option<&Host>,
    label: &str,
    signals: &Held,
) -> Result<Ended, String> {
    let (mut child, name) = match command {
        [] => (shell::command(label)?, "the shell".to_owned()),
        [program, arguments @ ..] => {
            let mut child = shell::Started::plain(program);
            child.command.args(arguments);
            (child, format!("\"{}\"", program.display()))
        }
    };
    environment(&mut child.command, near, far, label);
    near.place(&mut child.command).map_err(|error| error.to_string())?;
    // asked to end while the link was being made
    if let Some(received) = signals.next(Duration::ZERO) {
        return Ok(Ended(ExitStatus::from_raw(received.signal)));
    }
    let started = child.command.spawn();
    let mut running: Child = match started {
        Ok(running) => running,
        Err(error) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            let code = if missing { 127 } else { 126 };
            crate::print::warn(&format!("ekiden link: {name} cannot be run: {error}\n"));
            return Ok(Ended(ExitStatus::from_raw(code << 8)));
        }
    };
    let id = Pid::from_child(&running);
    let ended = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                let Some(received) = signals.next(LOOK) else { continue };
                // a terminal has sent it to the command as well
                if let (false, Some(signal)) =
                    (received.from_terminal, Signal::from_named_raw(received.signal))
                {
                    let _ = kill_process(id, signal);
                }
            }
        });
        let status = running.wait();
        ended.store(true, Ordering::Release);
        status
    });
    status.map(Ended).map_err(|error| format!("{name}: {error}"))
}

fn environment(command: &mut Command, near: &Host, far: Option<&Host>, label: &str) {
    command.env("EKIDEN_LINK", label).env("EKIDEN_NEAR", near.address().to_string());
    if let Some(far) = far {
        command.env("EKIDEN_FAR", far.address().to_string());
        command.env("EKIDEN_FAR6", far.address_v6().to_string());
    }
}
