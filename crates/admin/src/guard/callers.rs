//! The token and the operators of now: their files are read for each call, and their disk may not answer.

#[cfg(feature = "dashboard")]
use super::Caller;
use super::operators::Operator;
use crate::Shared;
use crate::problem::Problem;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// Calls that read at once: while the disk does not answer, each keeps a thread.
pub(crate) const READING: usize = 4;
/// The disk's time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may call.
#[derive(Debug)]
pub(crate) struct Callers {
    pub(crate) token: Token,
    /// `Err`: the file cannot be used, and nobody is known from before.
    pub(crate) operators: Result<Vec<Operator>, String>,
}

impl Callers {
    /// Reads both files on a thread that does not relay. Errors: there is no token, or the disk does not answer.
    pub(crate) async fn read(shared: &Arc<Shared>) -> Result<Self, Problem> {
        let (path, of) = (shared.kept()?.token.clone(), Arc::clone(shared));
        let reading = shared.reading.spawn_blocking(move || {
            let token = Token::read(&path).map_err(|error| error.to_string())?;
            Ok::<_, String>(Self { token, operators: of.operators.all() })
        });
        let read: Result<Self, String> = match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(broke)) => Err(broke.to_string()),
            Err(_) => Err(format!("the token was not read within {} s", PATIENCE.as_secs())),
        };
        read.map_err(|why| Problem::unavailable("no-token", why))
    }

    /// All of them.
    #[cfg(feature = "dashboard")]
    pub(crate) fn all(self) -> Vec<Caller> {
        let operators = self.operators.unwrap_or_default().into_iter().map(Caller::Operator);
        operators.chain([Caller::Token(self.token.id())]).collect()
    }
}
