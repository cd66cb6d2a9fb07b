//! A form as browsers send it: `application/x-www-form-urlencoded` (URL Standard §5.1).

/// The values of these names, each of which stands once; others are ignored. `None` where one is missing or stands
/// twice, and where a text is not UTF-8.
pub fn read<const N: usize>(text: &[u8], names: [&str; N]) -> Option<[String; N]> {
    let mut values: [Option<String>; N] = [const { None }; N];
    for pair in text.split(|byte| *byte == b'&') {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(equals);
        let name = decoded(name)?;
        let Some(at) = names.iter().position(|wanted| *wanted == name) else { continue };
        if values[at].replace(decoded(value.get(1..).unwrap_or_default())?).is_some() {
            return None;
        }
    }
    let mut missing = false;
    let values = values.map(|value| {
        missing |= value.is_none();
        value.unwrap_or_default()
    });
    (!missing).then_some(values)
}

/// A `+` is a space; a `%` without two digits stands for itself.
fn decoded(text: &[u8]) -> Option<String> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match (byte, digit(text.get(at)), digit(text.get(at + 1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(*byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two(text: &str) -> Option<[String; 2]> {
        read(text.as_bytes(), ["a", "b"])
    }

    #[test]
    fn values_are_decoded_and_stand_once() {
        let pair = |a: &str, b: &str| Some([a.to_owned(), b.to_owned()]);
        assert_eq!(two("a=1&b=2"), pair("1", "2"));
        assert_eq!(two("b=%E6%B8%AF+x&c=3&a="), pair("", "港 x"));
        assert_eq!(two("a=%2B%26%3d&b=%&x"), pair("+&=", "%"));
        assert_eq!(two("%61=1&b"), pair("1", ""));
        for wrong in ["", "a=1", "a=1&b=2&a=3", "a=%FF&b=2"] {
            assert_eq!(two(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn encoded_text_is_read_back(a in ".*", b in ".*") {
            let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
            let text = format!("a={}&b={}", encode(&a), encode(&b));
            prop_assert_eq!(two(&text), Some([a, b]));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes, ["a", "b"]);
        }
    }
}
