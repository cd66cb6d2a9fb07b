//! The token and the operators of now: their files are read for each call, and the disk of either may not answer.

#[cfg(feature = "dashboard")]
use super::Caller;
use super::operators::Operator;
use crate::Shared;
use crate::problem::Problem;
use crate::token::Token;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinError;

/// Calls that read a file at once: while its disk does not answer, each keeps a thread.
pub(crate) const READING: usize = 4;
/// The disk's time for a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may call.
#[derive(Debug)]
pub(crate) struct Callers {
    pub(crate) token: Token,
    /// `Err`: the file cannot be used, and nobody is known from before.
    pub(crate) operators: Result<Vec<Operator>, String>,
}

impl Callers {
    /// Reads both files at once. Errors: there is no token, or a disk does not answer.
    pub(crate) async fn read(shared: &Arc<Shared>) -> Result<Self, Problem> {
        let (token, operators) = (Self::read_token(shared), Self::read_operators(shared));
        let (token, operators) = tokio::try_join!(token, operators)?;
        Ok(Self { token, operators })
    }

    /// Reads the token alone, on a thread that does not relay. Errors: there is none, or its disk does not answer.
    pub(crate) async fn read_token(shared: &Arc<Shared>) -> Result<Token, Problem> {
        let path = shared.kept()?.token.clone();
        let read = move || Token::read(&path).map_err(|error| error.to_string());
        let reading = shared.reading_token.spawn_blocking(read);
        let read = in_time("the token", reading).await.flatten();
        read.map_err(|why| Problem::unavailable("no-token", why))
    }

    /// Reads the file of operators, on a thread that does not relay. Errors: its disk does not answer.
    async fn read_operators(
        shared: &Arc<Shared>,
    ) -> Result<Result<Vec<Operator>, String>, Problem> {
        let of = Arc::clone(shared);
        let reading = shared.reading_operators.spawn_blocking(move || of.operators.all());
        let read = in_time("the file of operators", reading).await;
        read.map_err(|why| Problem::unavailable("operators", why))
    }

    /// All of them.
    #[cfg(feature = "dashboard")]
    pub(crate) fn all(self) -> Vec<Caller> {
        let operators = self.operators.unwrap_or_default().into_iter().map(Caller::Operator);
        operators.chain([Caller::Token(self.token.id())]).collect()
    }
}

/// Errors: `file` was not read, and why.
async fn in_time<T>(
    file: &str,
    reading: impl Future<Output = Result<T, JoinError>>,
) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(broke)) => Err(format!("{file} was not read: {broke}")),
        Err(_) => Err(format!("{file} was not read within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Admin;
    use crate::guard::operators::hang;
    use crate::reload::Reloads;
    use crate::tests::config;
    use ekiden_config::At;

    #[tokio::test]
    async fn a_file_that_is_not_read_in_time_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let go = hang(&admin.shared);
        tokio::time::pause();
        let late = tokio::time::advance(PATIENCE + Duration::from_secs(1));
        let (read, ()) = tokio::join!(Callers::read_operators(&admin.shared), late);
        tokio::time::resume();
        drop(go);
        let why = read.unwrap_err();
        assert_eq!((why.status, why.kind.as_str()), (503, "urn:ekiden:operators"));
        assert_eq!(why.detail, "the file of operators was not read within 10 s");
        Callers::read(&admin.shared).await.unwrap();
        admin.stop().await;
    }
}
