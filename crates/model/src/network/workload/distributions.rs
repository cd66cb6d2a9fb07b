//! Distributions on `libm` alone: the same numbers on every machine and in every build. Each draw
//! takes a fixed number of steps, so that a changed parameter does not shift later draws.

use crate::rng::Rng;
use alloc::vec::Vec;

/// 2⁻⁵³: the distance between neighbours just below 1.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// Uniform in 0 … 1, the 1 excluded: the upper 53 bits of one step. E = 1/2.
pub fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * STEP
}

/// Whether something of probability `p` happens. One step.
pub fn happens(rng: &mut Rng, p: f64) -> bool {
    uniform(rng) < p
}

/// Exponential, by inversion: −mean · ln(1 − u). E = `mean`, in the unit of `mean`. One step.
pub fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * libm::log(1.0 - uniform(rng))
}

/// Standard normal: Box and Muller (1958) without the sine. Two steps.
pub fn normal(rng: &mut Rng) -> f64 {
    // 1 − u is never 0
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - uniform(rng)));
    radius * libm::cos(2.0 * core::f64::consts::PI * uniform(rng))
}

/// Log-normal: e to the power of μ + σ · normal. E = e^(μ + σ²/2), median e^μ. Two steps.
pub fn log_normal(rng: &mut Rng, mu: f64, sigma: f64) -> f64 {
    libm::exp(mu + sigma * normal(rng))
}

/// P(m) ∝ m^−a for m = 1 … H, by a table of the distribution. One step.
#[derive(Debug, Clone, PartialEq)]
pub struct PowerLaw {
    /// P(M ≤ m) at m − 1; the last is 1.
    cumulative: Vec<f64>,
    mean: f64,
}

impl PowerLaw {
    /// The law of exponent `a` up to `highest`, which counts as at least 1.
    pub fn new(a: f64, highest: u32) -> Self {
        let (mut cumulative, mut sum, mut moment) = (Vec::new(), 0.0, 0.0);
        for m in 1..=highest.max(1) {
            let weight = libm::pow(f64::from(m), -a);
            sum += weight;
            moment += f64::from(m) * weight;
            cumulative.push(sum);
        }
        for value in &mut cumulative {
            *value /= sum;
        }
        Self { cumulative, mean: moment / sum }
    }

    /// E = Σ m^(1−a) / Σ m^−a.
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// A number of 1 … H.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let u = uniform(rng);
        let below = self.cumulative.partition_point(|p| *p <= u);
        // the last entry is sum / sum, exactly 1, and u is less
        below as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 200_000;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut(&mut Rng) -> f64) -> (f64, f64) {
        let mut rng = Rng::new(11);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..N {
            let x = draw(&mut rng);
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(N);
        (mean, squares / f64::from(N) - mean * mean)
    }

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} instead of {expected}");
    }

    #[test]
    fn moments_match_the_distributions() {
        let (mean, variance) = moments(uniform);
        near(mean, 0.5, 0.003);
        near(variance, 1.0 / 12.0, 0.001);
        let (mean, variance) = moments(|rng| exponential(rng, 3.0));
        near(mean, 3.0, 0.03);
        near(variance, 9.0, 0.3);
        let (mean, variance) = moments(normal);
        near(mean, 0.0, 0.01);
        near(variance, 1.0, 0.02);
        let (mean, _) = moments(|rng| log_normal(rng, 4.3589, 0.9));
        near(mean, libm::exp(4.3589 + 0.405), 1.5);
        let (mean, _) = moments(|rng| f64::from(happens(rng, 0.91)));
        near(mean, 0.91, 0.003);
    }

    #[test]
    fn the_power_law_has_its_mean_and_its_shape() {
        // exponents solved for these means by bisection
        for (a, highest) in [(1.9073, 40), (1.9853, 60), (2.0277, 80)] {
            let law = PowerLaw::new(a, highest);
            near(law.mean(), 2.928, 0.001);
            let (mean, _) = moments(|rng| f64::from(law.draw(rng)));
            near(mean, 2.928, 0.05);
        }
        let law = PowerLaw::new(2.0, 3);
        let mut rng = Rng::new(3);
        let mut seen = [0_u32; 3];
        for _ in 0..49_000 {
            seen[law.draw(&mut rng) as usize - 1] += 1;
        }
        // 1 : 1/4 : 1/9 = 36 : 9 : 4
        for (found, expected) in seen.into_iter().zip([36_000.0, 9_000.0, 4_000.0]) {
            near(f64::from(found), expected, 300.0);
        }
        assert_eq!(PowerLaw::new(2.0, 0).draw(&mut rng), 1);
    }

    #[test]
    fn draws_are_the_same_on_every_machine() {
        let mut rng = Rng::new(1);
        let drawn = [uniform(&mut rng), exponential(&mut rng, 1.0), normal(&mut rng)];
        let bits = drawn.map(f64::to_bits);
        assert_eq!(bits, PINNED, "{drawn:?} {bits:#x?}");
    }

    /// The first draws of one seed, as recorded; a change would change every trace.
    const PINNED: [u64; 3] = [0x3fe9_f8ba_0fed_e078, 0x3ff5_ff19_137a_42af, 0xbf86_5cc9_844f_2c0a];

    #[test]
    fn each_draw_uses_a_fixed_number_of_steps() {
        for (steps, draw) in [
            (1, uniform as fn(&mut Rng) -> f64),
            (1, |rng| exponential(rng, 0.3)),
            (2, normal),
            (2, |rng| log_normal(rng, 1.0, 2.0)),
        ] {
            for seed in 0..50 {
                let (mut one, mut other) = (Rng::new(seed), Rng::new(seed));
                assert!(draw(&mut one).is_finite());
                for _ in 0..steps {
                    other.next_u64();
                }
                assert_eq!(one, other);
            }
        }
    }
}
