//! A deadline for what the database does.

use super::StoreError;
use std::time::Duration;

/// A database that takes longer for one thing is away; what it does may then be done twice.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What the database does, or that it does not answer.
pub(crate) async fn in_time<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Late(PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
}
