//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a keyed hash for short messages.

/// The hash of `bytes` under a key of 128 bits.
pub(super) fn siphash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let key = u128::from_le_bytes(*key);
    let (k0, k1) = (key as u64, (key >> 64) as u64);
    // "somepseudorandomlygeneratedbytes", as the paper's section 2.1 gives it
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        compress(&mut state, word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    }
    // the last word holds the length modulo 256 in its highest byte
    let rest = words.remainder().iter().rev();
    let last = rest.fold(0, |all, byte| all << 8 | u64::from(*byte));
    compress(&mut state, last | (bytes.len() as u64) << 56);
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn compress(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    (0..2).for_each(|_| round(state));
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn hashes_as_the_papers_appendix_a() {
        let key: [u8; 16] = core::array::from_fn(|n| n as u8);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(&key, &message), 0xa129_ca61_49be_45e5);
        // the first vector of the authors' code
        assert_eq!(siphash(&key, &[]), 0x726f_db47_dd0e_0e31);
    }
}
