//! A password that can be read aloud.

use ekiden_tunnel::trust::{NoRandomness, random};

/// Without letters and digits that look alike.
const LETTERS: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
const GROUPS: usize = 4;
const GROUP: usize = 5;

/// Twenty random letters and digits in groups of five: 99 bits.
pub(super) fn generate() -> Result<String, NoRandomness> {
    let mut text = String::new();
    while text.len() < GROUPS * (GROUP + 1) - 1 {
        let [byte] = random()?;
        // a multiple of the letters' number: each is as probable
        if usize::from(byte) >= 256 / LETTERS.len() * LETTERS.len() {
            continue;
        }
        if text.len() % (GROUP + 1) == GROUP {
            text.push('-');
        }
        text.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_differ() {
        let [one, other] = [generate().unwrap(), generate().unwrap()];
        assert_ne!(one, other);
        assert_eq!((one.len(), one.matches('-').count()), (23, 3), "{one}");
    }
}
