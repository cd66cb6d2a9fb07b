//! The field `traceparent` of a request (W3C Trace Context §3.2): the client's own trace.

/// The trace that a request is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Whether the client keeps it.
    pub(crate) sampled: bool,
}

impl TraceParent {
    /// Reads a value such as `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`. What is malformed is as if it were
    /// not there (§3.2.2.5).
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
        let mut parts = text.split('-');
        let mut next = |digits| parts.next().and_then(|part| hex(part, digits));
        let (version, trace_id, span_id, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let ends = parts.next().is_none();
        // later versions may have more, and 255 is none
        if version == 0xff || (version == 0 && !ends) || trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self { trace_id, span_id: span_id as u64, sampled: flags & 1 == 1 })
    }
}

/// A number of exactly so many digits, in lower case as the specification says.
fn hex(part: &str, digits: usize) -> Option<u128> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fine = part.len() == digits && part.bytes().all(lower);
    fine.then(|| u128::from_str_radix(part, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn reads_the_specifications_example() {
        let read = TraceParent::read(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((read.span_id, read.sampled), (0xb7ad_6b71_6920_3331, true));
        let later = format!("01{}-more", &EXAMPLE[2..]);
        assert_eq!(TraceParent::read(later.as_bytes()), Some(read));
        let not = EXAMPLE.replace("-01", "-00");
        assert!(!TraceParent::read(not.as_bytes()).unwrap().sampled);
    }

    #[test]
    fn malformed_values_are_ignored() {
        let zeros = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let no_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        for wrong in [
            "",
            "00",
            &EXAMPLE.to_uppercase(),
            &EXAMPLE[..54],
            &format!("{EXAMPLE}-x"),
            &format!("ff{}", &EXAMPLE[2..]),
            &EXAMPLE.replace("0af7", "+af7"),
            &zeros,
            &no_span,
        ] {
            assert_eq!(TraceParent::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(TraceParent::read(&[0xff; 55]), None);
    }
}
