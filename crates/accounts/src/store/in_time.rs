//! A deadline for what the database does.

use super::StoreError;
use std::time::Duration;

/// A database that takes longer for one thing is away; what it does may then be done twice.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// PostgreSQL ended it: the lock was not to be had in time, or the statement took too long.
const ENDED: [&str; 2] = ["55P03", "57014"];

/// What the database does, or that it does not answer.
pub(crate) async fn in_time<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = || Err(StoreError::Late(PATIENCE.as_secs()));
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Err(StoreError::Database(error))) if is_late(&error) => late(),
        Ok(done) => done,
        Err(_) => late(),
    }
}

/// Whether PostgreSQL ended it.
pub(super) fn is_late(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| ENDED.contains(&&*code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::error::{DatabaseError, ErrorKind};
    use std::borrow::Cow;
    use std::error::Error;
    use std::fmt;

    /// An error of PostgreSQL with this code.
    #[derive(Debug)]
    struct Failed(&'static str);

    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Failed {}

    impl DatabaseError for Failed {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(self.0))
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[tokio::test]
    async fn a_statement_that_the_database_ended_is_late_and_one_that_it_refused_is_not() {
        for (code, is_late) in [("55P03", true), ("57014", true), ("42501", false)] {
            let failed = StoreError::Database(sqlx::Error::Database(Box::new(Failed(code))));
            let error = in_time(async { Err::<(), _>(failed) }).await.unwrap_err();
            assert_eq!(matches!(error, StoreError::Late(_)), is_late, "{code}");
        }
    }
}
