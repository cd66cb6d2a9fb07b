//! `--apply`: writes the settings that findings name, and nothing else.

use super::{Finding, Severity};
use ekiden_linux::sysctl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io;

/// Where settings are kept over a restart of the machine.
pub(super) const KEPT_IN: &str = "/etc/sysctl.d/90-ekiden.conf";

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its dotted name.
    pub name: String,
    /// What it was.
    pub before: Option<String>,
    /// What was asked for.
    pub asked: String,
    /// What it is now.
    pub after: Option<String>,
    /// Why it could not be changed.
    pub refused: Option<String>,
}

/// Writes every setting of the findings that are not fine, each read back. `privileged`: this process
/// has CAP_NET_ADMIN, so that a refusal is the namespace's.
pub(super) fn apply(findings: &[Finding], privileged: bool) -> Vec<Change> {
    findings
        .iter()
        .filter(|finding| finding.severity > Severity::Ok)
        .flat_map(|finding| &finding.settings)
        .map(|setting| {
            let before = sysctl::read(&setting.name);
            let written = sysctl::write(&setting.name, &setting.value);
            let after = sysctl::read(&setting.name);
            let refused = match written {
                Err(error) => Some(reason(&error, privileged)),
                Ok(()) if after.as_deref() == Some(setting.value.as_str()) => None,
                // lists come back in an order of the kernel's own
                Ok(()) if sorted(after.as_deref()) == sorted(Some(&setting.value)) => None,
                Ok(()) => Some("the kernel made another value of it".into()),
            };
            let (name, asked) = (setting.name.clone(), setting.value.clone());
            Change { name, before, asked, after, refused }
        })
        .collect()
}

fn sorted(value: Option<&str>) -> Vec<&str> {
    let mut words: Vec<_> = value.unwrap_or_default().split_whitespace().collect();
    words.sort_unstable();
    words
}

fn reason(error: &io::Error, privileged: bool) -> String {
    match error.kind() {
        // a namespace sees some settings of the whole machine, and may not write them
        io::ErrorKind::PermissionDenied if privileged => {
            "read-only in this network namespace; run it on the machine itself".into()
        }
        io::ErrorKind::PermissionDenied => "not permitted; run `sudo ekiden doctor --apply`".into(),
        io::ErrorKind::NotFound => {
            "this setting is not in this namespace; run it on the machine itself".into()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "/proc/sys is read-only here, as in a container; run it on the machine itself".into()
        }
        _ => error.to_string(),
    }
}

/// Contents of a file for [`KEPT_IN`].
pub(super) fn kept(changes: &[Change]) -> String {
    let mut text = String::from("# Written for ekiden; read at start by sysctl --system.\n");
    for change in changes {
        // writing to a String does not fail
        let _ = writeln!(text, "{} = {}", change.name, change.asked);
    }
    text
}
