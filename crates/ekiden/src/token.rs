//! `ekiden token`: the secret that the management API asks for. It changes a file; a running daemon looks at that with
//! each call.

use crate::cli::{TokenArgs, TokenCommand};
use crate::config::{self, Overrides};
use crate::exit;
use crate::management::token::Token;
use crate::management::token_path;
use crate::print::{out, warn};
use std::error::Error;
use std::path::PathBuf;

/// Runs it. Returns the exit code.
#[must_use]
pub(crate) fn run(command: &TokenCommand) -> u8 {
    let done = match command {
        TokenCommand::Show { config } => path(config).and_then(|path| Ok(Token::read(&path)?)),
        TokenCommand::Rotate { config } => path(config).and_then(|path| Ok(Token::make(&path)?)),
    };
    match done {
        Ok(token) => out(&format!("{}\n", token.reveal())),
        Err(error) => {
            warn(&format!("ekiden token: {error}\n"));
            exit::NOT_FINE
        }
    }
}

fn path(args: &TokenArgs) -> Result<PathBuf, Box<dyn Error>> {
    let loaded = config::load(args.config.as_deref(), &Overrides::default());
    if !loaded.reading.is_usable() {
        return Err(config::render_all(&loaded.reading.problems).into());
    }
    Ok(token_path(&loaded.reading.draft)?)
}
