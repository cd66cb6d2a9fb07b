//! `ekiden token`: the token of the management API. It changes a file that a running daemon reads for each call.

use crate::cli::{TokenArgs, TokenCommand};
use crate::commands::{finished, own, record_change};
use crate::daemon::start::admin_config;
use crate::print::out;
use ekiden_admin::token::Token;
use std::error::Error;
use std::path::PathBuf;

/// Runs it. Returns the exit code.
pub(crate) fn run(command: &TokenCommand) -> u8 {
    let done = match command {
        TokenCommand::Show { config } => path(config).and_then(|path| Ok(Token::read(&path)?)),
        TokenCommand::Rotate { config } => {
            let done = path(config).and_then(|path| Ok(Token::make(&path)?));
            let command = ("ekiden token rotate", "");
            record_change(config.config.as_deref(), command, &done, "a new token");
            done
        }
    };
    finished("token", done.map(|token| out(&format!("{}\n", token.reveal()))))
}

fn path(args: &TokenArgs) -> Result<PathBuf, Box<dyn Error>> {
    Ok(admin_config(&own(args.config.as_deref())?).token_path()?)
}
