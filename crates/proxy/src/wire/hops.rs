//! The relays that a request has passed: names in a value of `Via` (RFC 9110 §7.6.3), and among the methods of a SOCKS5
//! greeting, which has no field for them.
//!
//! RFC 1928 §3 keeps the methods 0x80 to 0xfe for private use, and a server skips those that it does not know. Each relay
//! adds nine of them: one that begins a hop, and 48 bits of its name's hash, six to a method.
//! ```text
//! hop = 0xe5 8(0x80 + 6 bits)
//! ```
//! A hop that came by SOCKS is named `socks-` and its hash in `Via`. The hash finds rings; it keeps nobody out who lies.

/// Hops of a greeting: as many as fit beside its other methods (RFC 1928 §3).
pub const MOST: usize = 28;

const BEGIN: u8 = 0xe5;
const DIGIT: u8 = 0x80;
const DIGITS: u32 = 8;
const PREFIX: &str = "socks-";

/// A relay's name as it travels in greetings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop(u64);

impl Hop {
    /// The hop of a name in `Via`, whose letters have no case.
    pub fn of(name: &[u8]) -> Self {
        let digits = name.split_at_checked(PREFIX.len());
        let digits = digits.filter(|(prefix, _)| prefix.eq_ignore_ascii_case(PREFIX.as_bytes()));
        let digits = digits.and_then(|(_, digits)| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| {
            digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if let Some(known) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            return Self(known);
        }
        // FNV-1a
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
        });
        Self((hash ^ hash >> 48) & 0xffff_ffff_ffff)
    }

    fn methods(self) -> impl Iterator<Item = u8> {
        let digit = move |nth| DIGIT + (self.0 >> (6 * nth) & 0x3f) as u8;
        std::iter::once(BEGIN).chain((0..DIGITS).rev().map(digit))
    }
}

/// The names in a value of `Via`, the first relay first.
pub fn names(via: &[u8]) -> impl Iterator<Item = &[u8]> {
    via.split(|byte| *byte == b',')
        .filter_map(|hop| hop.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()).nth(1))
}

/// The methods that stand for the last [`MOST`] hops of a value of `Via`.
pub fn to_methods(via: &[u8]) -> Vec<u8> {
    let hops: Vec<Hop> = names(via).map(Hop::of).collect();
    hops[hops.len().saturating_sub(MOST)..].iter().flat_map(|hop| hop.methods()).collect()
}

/// The hops among the methods of a greeting.
pub fn from_methods(methods: &[u8]) -> Vec<Hop> {
    let hop = |from: &[u8]| {
        let digits = from.get(..DIGITS as usize)?;
        digits.iter().try_fold(0, |sum, digit| {
            let digit = digit.checked_sub(DIGIT).filter(|digit| *digit < 64)?;
            Some(sum << 6 | u64::from(digit))
        })
    };
    let begins = methods.iter().enumerate().filter(|(_, method)| **method == BEGIN);
    begins.filter_map(|(at, _)| hop(&methods[at + 1..])).map(Hop).collect()
}

/// A value of `Via` with hops that came by SOCKS, and `name` as the last.
pub fn to_via(hops: &[Hop], name: &str) -> Vec<u8> {
    let mut via = String::new();
    for Hop(hash) in hops {
        via += &format!("5 {PREFIX}{hash:012x}, ");
    }
    (via + "5 " + name).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hops_survive_socks_and_http_in_turn() {
        let first = Hop::of(b"ekiden-0123abcd");
        assert_eq!(first, Hop::of(b"Ekiden-0123ABCD"));
        assert_ne!(first, Hop::of(b"ekiden-0123abce"));
        let methods = to_methods(b"1.1 ekiden-0123abcd");
        assert_eq!(methods.len(), 9);
        let seen = from_methods(&[&[0, 2], &methods[..]].concat());
        assert_eq!(seen, [first]);
        let via = to_via(&seen, "second");
        assert_eq!(names(&via).map(Hop::of).collect::<Vec<_>>(), [first, Hop::of(b"second")]);
        assert_eq!(from_methods(&to_methods(&via)).len(), 2);
    }

    #[test]
    fn greeting_has_room_for_all_methods() {
        let via = vec!["1.1 relay"; 100].join(", ");
        assert_eq!(from_methods(&to_methods(via.as_bytes())).len(), MOST);
        assert!(to_methods(via.as_bytes()).len() + 2 <= 255);
    }

    proptest! {
        #[test]
        fn any_methods_are_read(methods in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(from_methods(&methods).len() <= MOST + 1);
        }

        #[test]
        fn any_via_is_written_and_read_again(
            names in prop::collection::vec("[!-+.-~]{1,20}", 0..MOST),
        ) {
            let via = names.iter().map(|name| format!("1.1 {name}")).collect::<Vec<_>>().join(",");
            let hops: Vec<Hop> = names.iter().map(|name| Hop::of(name.as_bytes())).collect();
            prop_assert_eq!(from_methods(&to_methods(via.as_bytes())), hops);
        }
    }
}
