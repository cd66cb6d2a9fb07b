//! Heads are read and parsed once the memory that they take counts.

use super::plan::{NO_MEMORY, STATE, head_limits};
use crate::resources::HeldMemory;
use crate::session::{Session, within};
use crate::transfer::buffered::{BufferedStream, FIRST_READ};
use crate::transfer::scratch::SCRATCH;
use crate::wire::http::BadMessage;
use crate::wire::http::head::{HeadSearch, Request};
use std::io;

/// Reads a request's head; returns its size in bytes, too. More is read once its memory counts in `held`, and the
/// request is made of it once what that takes counts as well.
pub(super) async fn read_head(
    session: &Session,
    incoming: &mut BufferedStream,
    held: &mut HeldMemory,
) -> io::Result<Result<(Request, usize), BadMessage>> {
    let settings = &session.config.settings;
    let limits = head_limits(session);
    let reading = async {
        let mut search = HeadSearch::default();
        loop {
            match search.whole_request(incoming.bytes(), limits) {
                Ok(Some(whole)) => {
                    let parsed = copies(session) * whole.memory;
                    if !held.resize(STATE + parsed + incoming.capacity()).await {
                        return Ok(Err(NO_MEMORY));
                    }
                    let request = whole.request(incoming.bytes(), limits);
                    return Ok(request.inspect(|(_, used)| incoming.consume(*used)));
                }
                Err(bad) => return Ok(Err(bad)),
                Ok(None) => {}
            }
            let most = limits.bytes.saturating_sub(incoming.bytes().len());
            match read_counted(incoming, (&mut *held, STATE), most, false).await? {
                None => return Ok(Err(NO_MEMORY)),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => {}
            }
        }
    };
    within(settings.timeouts.request_head, reading).await
}

/// Reads at most `most` bytes more of a head, once they count in `held` beside `other` bytes: as many as there are at
/// once, or as the thread's buffer takes where it is `fast` and memory is ample. `None`: there is no memory for them.
pub(super) async fn read_counted(
    incoming: &mut BufferedStream,
    (held, other): (&mut HeldMemory, usize),
    most: usize,
    fast: bool,
) -> io::Result<Option<usize>> {
    incoming.stream.readable().await?;
    let (length, twice) = (incoming.bytes().len(), 2 * incoming.capacity());
    // the buffer at least doubles where it grows
    let grown = |more: usize| other + (length + more).max(twice);
    let (all, some) = (most.min(SCRATCH), most.min(length.max(FIRST_READ)));
    let most = if fast && held.resize_if_free(grown(all)) {
        all
    } else if held.resize(grown(some)).await {
        some
    } else {
        return Ok(None);
    };
    let read = incoming.fill(most).await?;
    // less than before, which never fails
    held.resize(other + incoming.capacity()).await;
    Ok(Some(read))
}

/// How often a request's fields are in memory: the cache has a copy.
pub(super) fn copies(session: &Session) -> usize {
    1 + usize::from(session.config.shared.cache.is_some())
}
