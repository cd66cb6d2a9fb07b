//! Heads of interim responses that wait to be sent together: an answer of hundreds would otherwise be a packet each.

/// Bytes that are counted before they are sent.
const AT_ONCE: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct InterimHeads {
    bytes: Vec<u8>,
    counted: usize,
}

impl InterimHeads {
    /// One more, which is `head` as written and had `read` bytes; the longer of both counts.
    pub(super) fn add(&mut self, head: &[u8], read: usize) {
        self.bytes.extend(head);
        self.counted += read.max(head.len());
    }

    /// Bytes of memory that they take.
    pub(super) const fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether to send them before another is read.
    pub(super) const fn is_full(&self) -> bool {
        self.counted >= AT_ONCE
    }

    /// Those to send, and how many bytes count for them.
    pub(super) fn take(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.counted))
    }
}
