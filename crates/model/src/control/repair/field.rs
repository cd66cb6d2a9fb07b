//! GF(2⁸) with the polynomial x⁸ + x⁴ + x³ + x² + 1, as RFC 8681 §3.6 has it.

/// The polynomial without x⁸.
const POLYNOMIAL: u8 = 0x1d;
/// Bytes that are worked on together, so that compilers use vector registers.
const CHUNK: usize = 64;

/// Powers of 2, and their exponents; 2 generates the field.
const TABLES: ([u8; 256], [u8; 256]) = {
    let (mut powers, mut logarithms) = ([0; 256], [0; 256]);
    let (mut power, mut exponent) = (1_u8, 0);
    while exponent < 255 {
        powers[exponent] = power;
        logarithms[power as usize] = exponent as u8;
        power = doubled(power);
        exponent += 1;
    }
    powers[255] = 1;
    (powers, logarithms)
};

const fn doubled(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

/// The product of two elements.
pub(super) const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (powers, logarithms) = &TABLES;
    let exponent = logarithms[a as usize] as usize + logarithms[b as usize] as usize;
    powers[exponent % 255]
}

/// 1 / `a`; 0 for 0, which has no inverse.
pub(super) const fn inverse(a: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    let (powers, logarithms) = &TABLES;
    powers[255 - logarithms[a as usize] as usize]
}

/// Adds `factor` times `bytes` to as many of `sum`.
pub(super) fn add_multiple(sum: &mut [u8], bytes: &[u8], factor: u8) {
    let length = sum.len().min(bytes.len());
    #[cfg(test)]
    super::counted::step(length);
    let (sum, bytes) = (&mut sum[..length], &bytes[..length]);
    match factor {
        0 => {}
        1 => sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte),
        _ => {
            let mut sums = sum.chunks_exact_mut(CHUNK);
            let mut chunks = bytes.chunks_exact(CHUNK);
            for (sum, chunk) in sums.by_ref().zip(chunks.by_ref()) {
                add_chunk(sum, chunk, factor);
            }
            for (sum, byte) in sums.into_remainder().iter_mut().zip(chunks.remainder()) {
                *sum ^= product(factor, *byte);
            }
        }
    }
}

/// By doubling eight times: four instructions each for a vector register, and no table.
fn add_chunk(sum: &mut [u8], chunk: &[u8], factor: u8) {
    let mut power = [0_u8; CHUNK];
    power.copy_from_slice(chunk);
    let mut bits = factor;
    loop {
        if bits & 1 != 0 {
            sum.iter_mut().zip(&power).for_each(|(sum, byte)| *sum ^= byte);
        }
        bits >>= 1;
        if bits == 0 {
            return;
        }
        for byte in &mut power {
            *byte = (*byte << 1) ^ if (*byte as i8) < 0 { POLYNOMIAL } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_element_has_an_inverse() {
        assert!((1..=255).all(|a| product(a, inverse(a)) == 1));
        // x · x⁷ = x⁸ = x⁴ + x³ + x² + 1
        assert_eq!(product(2, 0x80), 0x1d);
        assert_eq!((product(0, 7), product(7, 0), inverse(0), inverse(1)), (0, 0, 0, 1));
    }

    proptest! {
        #[test]
        fn multiplication_is_that_of_a_field(a: u8, b: u8, c: u8) {
            prop_assert_eq!(product(a, b), product(b, a));
            prop_assert_eq!(product(a, product(b, c)), product(product(a, b), c));
            prop_assert_eq!(product(a, b ^ c), product(a, b) ^ product(a, c));
        }

        #[test]
        fn many_bytes_are_multiplied_as_one(
            mut sum in prop::collection::vec(any::<u8>(), 0..300),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            factor: u8,
        ) {
            let each = |(at, sum): (usize, &u8)| {
                sum ^ bytes.get(at).map_or(0, |byte| product(factor, *byte))
            };
            let expected: std::vec::Vec<u8> = sum.iter().enumerate().map(each).collect();
            add_multiple(&mut sum, &bytes, factor);
            prop_assert_eq!(sum, expected);
        }
    }
}
