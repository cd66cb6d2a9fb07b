//! Frames of a tunnel: in pieces the same as at once, and what was read is written as it can be read again.
#![no_main]

use bytes::{Bytes, BytesMut};
use ekiden_tunnel::frame::{BadFrame, Frame, LONGEST, read, read_all};
use libfuzzer_sys::fuzz_target;

/// All frames there are, of a stream that comes in pieces of so many bytes.
fn in_pieces(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, BadFrame> {
    let mut held = BytesMut::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        while let Some(frame) = read(&mut held)? {
            frames.push(frame);
        }
        assert!(held.len() <= LONGEST + 16, "a frame that never ends");
    }
    Ok(frames)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = in_pieces(bytes, bytes.len().max(1));
    for piece in [1, 7] {
        assert_eq!(in_pieces(bytes, piece), whole);
    }
    let _ = read_all(Bytes::copy_from_slice(bytes));
    for frame in whole.unwrap_or_default() {
        let mut written = frame.to_bytes();
        assert_eq!(read(&mut written), Ok(Some(frame)));
        assert!(written.is_empty());
    }
});
