//! Content of a connection's frames that no session takes: heads of requests that are refused here, and bodies that come
//! after the answer. It counts as framing does.

use crate::policy::quota::Framing;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::Direction;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What a part of a client's frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The head of this stream's request.
    Head(u32),
    Body,
}

/// Heads that wait for their request at most. A connection has a hundred streams.
const HEADS: usize = 1024;

/// Content that came, until a session takes it.
#[derive(Debug)]
pub(super) struct Untaken {
    framing: Arc<Framing>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of each stream in turn: its number, and bytes.
    heads: VecDeque<(u32, usize)>,
    body: usize,
    /// The most that can be on its way to sessions: what the connection's window lets come unread.
    window: usize,
}

impl State {
    /// Those that no request can follow any more, of streams before this one.
    fn refused(&mut self, before: u32) -> usize {
        let is_refused = |head: &mut (u32, usize)| head.0 < before;
        std::iter::from_fn(|| self.heads.pop_front_if(is_refused)).map(|(_, bytes)| bytes).sum()
    }
}

impl Untaken {
    /// `window`: the connection's at first, bytes.
    pub(super) fn new(framing: Arc<Framing>, window: usize) -> Self {
        Self { framing, state: Mutex::new(State { window, ..State::default() }) }
    }

    pub(super) fn on_came(&self, content: Content, bytes: usize) {
        let mut state = locked(&self.state);
        let mut beyond = 0;
        match content {
            Content::Head(stream) => {
                match state.heads.back_mut().filter(|head| head.0 == stream) {
                    Some(head) => head.1 += bytes,
                    None => state.heads.push_back((stream, bytes)),
                }
                if state.heads.len() > HEADS {
                    beyond = state.heads.pop_front().map_or(0, |(_, bytes)| bytes);
                }
            }
            Content::Body => {
                state.body += bytes;
                beyond = state.body.saturating_sub(state.window);
                state.body -= beyond;
            }
        }
        drop(state);
        self.add(beyond);
    }

    /// The connection's window is as large.
    pub(super) fn on_window(&self, bytes: usize) {
        let mut state = locked(&self.state);
        // what came within a larger one may still be there
        state.window = state.window.max(bytes);
    }

    /// A session reads the head of this stream's request. Those before it were refused.
    pub(super) fn take_head(&self, stream: u32) {
        let mut state = locked(&self.state);
        let refused = state.refused(stream);
        let _ = state.heads.pop_front_if(|head| head.0 == stream);
        drop(state);
        self.add(refused);
    }

    /// A session gets so many bytes of a body.
    pub(super) fn take_body(&self, bytes: usize) {
        let mut state = locked(&self.state);
        state.body = state.body.saturating_sub(bytes);
    }

    fn add(&self, bytes: usize) {
        if bytes > 0 {
            self.framing.add(Direction::Up, bytes);
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *locked(&self.state));
        self.framing.add(Direction::Up, state.refused(u32::MAX) + state.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(framing: &Framing) -> u64 {
        framing.due(Direction::Up)
    }

    #[test]
    fn heads_that_no_session_reads_count_once_a_later_one_is_read() {
        let framing = Arc::new(Framing::default());
        let untaken = Untaken::new(Arc::clone(&framing), 100);
        for (stream, bytes) in [(1, 10), (3, 20), (3, 5), (5, 40), (7, 80)] {
            untaken.on_came(Content::Head(stream), bytes);
        }
        untaken.take_head(1);
        assert_eq!(due(&framing), 0);
        untaken.take_head(5);
        assert_eq!(due(&framing), 25);
        drop(untaken);
        assert_eq!(due(&framing), 105);
    }

    #[test]
    fn bodies_count_beyond_what_can_be_on_its_way() {
        let framing = Arc::new(Framing::default());
        let untaken = Untaken::new(Arc::clone(&framing), 100);
        untaken.on_came(Content::Body, 90);
        untaken.take_body(60);
        untaken.on_came(Content::Body, 70);
        assert_eq!(due(&framing), 0);
        untaken.on_came(Content::Body, 7);
        assert_eq!(due(&framing), 7);
        untaken.on_window(150);
        untaken.on_window(100);
        untaken.on_came(Content::Body, 50);
        assert_eq!(due(&framing), 7);
        untaken.take_body(140);
        drop(untaken);
        assert_eq!(due(&framing), 17);
    }

    #[test]
    fn endless_heads_take_no_memory() {
        let framing = Arc::new(Framing::default());
        let untaken = Untaken::new(Arc::clone(&framing), 100);
        (0..5_000).for_each(|nth| untaken.on_came(Content::Head(2 * nth + 1), 3));
        assert_eq!(locked(&untaken.state).heads.len(), HEADS);
        drop(untaken);
        assert_eq!(due(&framing), 15_000);
    }
}
