//! What is said over netlink: headers, attributes, and attributes within attributes.

use libc::{c_int, nlmsghdr};

/// `struct nlmsghdr`.
pub(super) const HEADER: usize = size_of::<nlmsghdr>();
/// `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// The bits of an attribute's type that are flags.
const TYPE_MASK: u16 = 0x3fff;

/// A request under construction.
pub(super) struct Request(Vec<u8>);

impl Request {
    /// Of type `kind`, with flags besides `NLM_F_REQUEST`, and the fixed part that the type has.
    pub(super) fn new(kind: u16, flags: c_int, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend(fixed);
        let mut request = Self(bytes);
        request.align();
        request
    }

    /// An attribute.
    pub(super) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.0.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.align();
        self
    }

    /// An attribute of 32 bits.
    pub(super) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// A text, with the NUL the kernel wants.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    /// An attribute made of a fixed part and further attributes.
    pub(super) fn nest(
        &mut self,
        kind: u16,
        fixed: &[u8],
        inside: impl FnOnce(&mut Self),
    ) -> &mut Self {
        let start = self.0.len();
        self.put(kind, fixed);
        inside(self);
        let length = (self.0.len() - start) as u16;
        if let Some(place) = self.0.get_mut(start..start + 2) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self
    }

    /// The whole, with its length and number.
    pub(super) fn bytes(&mut self, sequence: u32) -> &[u8] {
        let length = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.0
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// One message of an answer.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages of a datagram; stops at one that is cut short.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = word(bytes, 0)? as usize;
        let body = bytes.get(HEADER..length)?;
        let kinds = word(bytes, 4)?.to_ne_bytes();
        let message = Message {
            kind: u16::from_ne_bytes([kinds[0], kinds[1]]),
            flags: u16::from_ne_bytes([kinds[2], kinds[3]]),
            sequence: word(bytes, 8)?,
            body,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in a stretch of bytes: type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<ATTRIBUTE>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK, value))
    })
}

/// The attribute of a type.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(is, value)| (is == kind).then_some(value))
}

/// The 32 bits at an offset.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

/// A text up to its NUL.
pub(super) fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_built_is_read_again() {
        let mut request = Request::new(16, libc::NLM_F_ACK, &[7; 8]);
        request.text(3, "a").nest(18, &[1, 2, 3, 4], |inner| {
            inner.number(5, 6);
        });
        let bytes = request.bytes(9).to_vec();
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!((all.len(), all[0].kind, all[0].flags, all[0].sequence), (1, 16, 5, 9));
        let rest = &all[0].body[8..];
        assert_eq!(attribute(rest, 3).map(text).as_deref(), Some("a"));
        let nested = attribute(rest, 18).unwrap();
        assert_eq!(attribute(&nested[4..], 5), Some(&6_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(rest, 4), None);
    }

    proptest! {
        #[test]
        fn nothing_read_makes_it_panic_or_go_on_for_ever(bytes: Vec<u8>) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
