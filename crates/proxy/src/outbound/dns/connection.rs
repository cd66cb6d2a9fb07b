//! A connection to a server, which questions share.

use super::https::Https;
use super::pipe::Pipe;
use crate::wire::dns::{Lie, Question, ServerReply};
use std::io;

#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// Messages behind their lengths, over TCP, within TLS or through a tunnel.
    Pipe(Pipe),
    Https(Https),
}

impl Connection {
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Pipe(pipe) => pipe.is_open(),
            Self::Https(https) => https.is_open(),
        }
    }

    /// The server's reply. Errors: the connection broke, or of the kind `InvalidData` where it works and carries
    /// something else.
    pub(super) async fn ask(&self, question: &Question) -> io::Result<Result<ServerReply, Lie>> {
        match self {
            Self::Pipe(pipe) => pipe.ask(question).await,
            Self::Https(https) => https.ask(question).await,
        }
    }
}
