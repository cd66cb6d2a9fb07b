//! Interim responses, which a client may wait for before it sends its body (RFC 9110 §10.1.1, §15.2).

use super::{H2Stream, StreamBroken};
use crate::resources::HeldMemory;
use crate::wire::http::h2::response_head;
use crate::wire::http::head::Response;
use bytes::Bytes;
use h2::server::SendResponse;
use std::future::poll_fn;
use std::sync::Arc;

impl H2Stream {
    /// Sends one, once the one before it is written: the library keeps them, and an origin may send them without end.
    /// `counted`: what counts its head; a part of that stays until it is written.
    pub(super) async fn pass_on(
        &self,
        response: &Response,
        respond: &mut SendResponse<Bytes>,
        counted: &mut HeldMemory,
    ) -> Result<(), StreamBroken> {
        let turn = Arc::clone(&self.little).acquire_owned();
        let turn = tokio::time::timeout(self.patience.into(), turn);
        let turn = tokio::select! {
            biased;
            // the library would send one even then
            _ = poll_fn(|context| respond.poll_reset(context)) => {
                self.on_reset();
                return Err(StreamBroken);
            }
            turn = turn => turn.ok().and_then(Result::ok).ok_or(StreamBroken)?,
        };
        // each has a field that keeps both: the session has added `Via`
        let unsent = (counted.split(response.memory()), turn);
        let head = response_head(response, false, unsent).ok_or(StreamBroken)?;
        respond.send_informational(head)?;
        Ok(())
    }
}
