//! A client whose account has used up its volume and is cut: it may read the page that says so, and nothing else.

use super::http::forward;
use super::tls;
use crate::policy::quota::NotAdmitted;
use crate::session::{Session, within};
use crate::transfer::buffered::BufferedStream;
use std::sync::Arc;

/// Reads one request head, within TLS or not, and answers or refuses it.
pub(super) async fn serve(session: &Session, account: &Arc<str>, not: &NotAdmitted) {
    let Some(_reader) = session.config.shared.spent_readers.enter(account) else {
        return session.refuse_by_account(not).await;
    };
    let timeouts = &session.config.settings.timeouts;
    let mut first = [0];
    let peeked = within(timeouts.first_byte, session.client.peek(&mut first));
    if !matches!(session.unless_stopping(peeked).await, Some(Ok(1..))) {
        return session.count_and_log_refusal(&not.to_string());
    }
    let client = BufferedStream::new(Arc::clone(&session.client), Vec::new());
    match first {
        [4 | 5] => session.refuse_by_account(not).await,
        [tls::FIRST_BYTE] if session.config.certificate.is_some() && session.tls.is_none() => {
            // the handshake, and then the head
            let limit = 2 * std::time::Duration::from(timeouts.request_head);
            let _ = tokio::time::timeout(limit, Box::pin(tls::serve(session, client))).await;
        }
        [tls::FIRST_BYTE] => session.refuse_by_account(not).await,
        _ => Box::pin(forward::serve_spent(session, client, not)).await,
    }
}
