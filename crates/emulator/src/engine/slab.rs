//! The bytes of packets inside a link, by number; buffers are used again.

#[derive(Debug, Default)]
pub(crate) struct Slab {
    frames: Vec<Vec<u8>>,
    free: Vec<u32>,
}

impl Slab {
    pub(crate) fn keep(&mut self, frame: &[u8]) -> u32 {
        if let Some(id) = self.free.pop() {
            let kept = &mut self.frames[id as usize];
            kept.clear();
            kept.extend_from_slice(frame);
            return id;
        }
        self.frames.push(frame.to_vec());
        self.frames.len() as u32 - 1
    }

    pub(crate) fn frame(&self, id: u32) -> &[u8] {
        &self.frames[id as usize]
    }

    pub(crate) fn frame_mut(&mut self, id: u32) -> &mut [u8] {
        &mut self.frames[id as usize]
    }

    pub(crate) fn free(&mut self, id: u32) {
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn buffers_are_used_again() {
        let mut slab = Slab::default();
        let first = slab.keep(b"one");
        let second = slab.keep(b"two");
        slab.free(first);
        assert_eq!(slab.keep(b"three"), first);
        assert_eq!((slab.frame(first), slab.frame(second)), (&b"three"[..], &b"two"[..]));
    }
}
