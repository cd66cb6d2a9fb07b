//! A shell whose prompt shows the link.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A command to be started, and the folder with its start-up file, which must live as long.
pub(super) struct Started {
    /// The command.
    pub command: Command,
    _folder: Option<TempDir>,
}

impl Started {
    /// A program without a folder.
    pub(super) fn plain(program: impl AsRef<OsStr>) -> Self {
        Self { command: Command::new(program), _folder: None }
    }
}

/// The user's shell. Of bash and zsh the user's own start-up files are read first; other shells take
/// the prompt from the environment or not at all.
pub(super) fn command(label: &str) -> Result<Started, String> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    let name = Path::new(&shell).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut started = Started::plain(&shell);
    let mark = format!("[link {label}] ");
    let folder = || {
        let folder = tempfile::Builder::new().prefix("ekiden-shell").tempdir();
        folder.map_err(|error| format!("a temporary folder: {error}"))
    };
    let write = |folder: &TempDir, name: &str, text: String| {
        let file = folder.path().join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    };
    match name.as_str() {
        "bash" => {
            let folder = folder()?;
            let text = format!("[ -f ~/.bashrc ] && . ~/.bashrc\nPS1='{mark}'\"$PS1\"\n");
            write(&folder, "bashrc", text)?;
            started.command.arg("--rcfile").arg(folder.path().join("bashrc")).arg("-i");
            started._folder = Some(folder);
        }
        "zsh" => {
            let folder = folder()?;
            let own = std::env::var("ZDOTDIR").unwrap_or_else(|_| "$HOME".to_owned());
            let percent = mark.replace('%', "%%");
            let text = format!(
                "ZDOTDIR=\"{own}\"\n[ -f \"$ZDOTDIR/.zshrc\" ] && . \"$ZDOTDIR/.zshrc\"\n\
                 PROMPT='{percent}'\"$PROMPT\"\n"
            );
            write(&folder, ".zshrc", text)?;
            started.command.env("ZDOTDIR", folder.path()).arg("-i");
            started._folder = Some(folder);
        }
        _ => {
            started.command.env("PS1", format!("{mark}$ "));
        }
    }
    Ok(started)
}
