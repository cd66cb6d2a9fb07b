//! From values to places on an axis, and where to put its ticks.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    step: f64,
    log: bool,
}

/// As few as read well on a panel this small.
const TICKS: f64 = 5.0;

impl Scale {
    /// An axis over `low` … `high`: from zero in round steps, or over whole decades and their halves.
    pub(super) fn of(low: f64, high: f64, log: bool) -> Self {
        if log {
            let low = low.max(1e-9);
            let (down, up) =
                (round_125(low, f64::floor), round_125(high.max(low * 1.1), f64::ceil));
            return Self { low: down, high: up.max(down * 2.0), step: 0.0, log };
        }
        let high = if high > 0.0 { high } else { 1.0 };
        let raw = high / TICKS;
        let magnitude = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|n| n * magnitude)
            .into_iter()
            .find(|step| *step >= raw * 0.999)
            .unwrap_or(10.0 * magnitude);
        // a value that ends just over a tick needs no further step of its own
        Self { low: 0.0, high: (high / step - 1e-9).ceil() * step, step, log }
    }

    /// Where a value stands, 0 at the low end and 1 at the high end; what is outside stands at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Its low and its high end.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Where lines across are drawn.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let count = (self.high / self.step).round() as u32;
            return (0..=count).map(|n| f64::from(n) * self.step).collect();
        }
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let wide = last - first > 3;
        let mantissas: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        (first..=last)
            .flat_map(|power| mantissas.iter().map(move |m| m * 10f64.powi(power)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }
}

/// The nearest of 1, 2, 5 times a power of ten, below or above.
fn round_125(value: f64, to: fn(f64) -> f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let mantissa = value / power;
    let steps = [1.0, 2.0, 5.0, 10.0];
    let up = to(0.5) > 0.5;
    let found = if up {
        steps.into_iter().find(|s| *s >= mantissa * 0.999)
    } else {
        steps.into_iter().rev().find(|s| *s <= mantissa * 1.001)
    };
    found.unwrap_or(1.0) * power
}

/// A tick as written: no more digits than it has.
pub fn label(value: f64) -> String {
    if value > 0.0 && value < 0.001 && (value.log10() - value.log10().round()).abs() < 1e-9 {
        return power(value.log10().round() as i32);
    }
    let digits = if value.abs() < 0.01 { 6 } else { 3 };
    let text = format!("{value:.digits$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// A power of ten.
pub fn power(exponent: i32) -> String {
    let raised = |c: char| match c.to_digit(10) {
        Some(n) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][n as usize],
        None => '⁻',
    };
    format!("10{}", exponent.to_string().chars().map(raised).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_zero_and_end_on_a_round_number() {
        let scale = Scale::of(37.0, 369.0, false);
        assert_eq!(scale.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!((scale.share(0.0), scale.share(400.0), scale.share(200.0)), (0.0, 1.0, 0.5));
        assert_eq!(label(0.25), "0.25");
        assert_eq!(label(400.0), "400");
    }

    #[test]
    fn logarithmic_axes_end_on_1_2_or_5() {
        let scale = Scale::of(4.4, 310.0, true);
        assert_eq!(scale.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        assert!((scale.share(31.6) - 0.5).abs() < 0.01);
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(
            (label(1e-6), label(0.001), label(1.0)),
            ("10⁻⁶".into(), "0.001".into(), "1".into())
        );
        assert_eq!(
            (label(0.0013), label(0.0), power(1)),
            ("0.0013".into(), "0".into(), "10¹".into())
        );
        let ticks = Scale::of(1e-6, 1.0, true).ticks();
        assert_eq!(ticks.len(), 7, "{ticks:?}");
    }

    #[test]
    fn scales_an_axis_without_values() {
        assert!(!Scale::of(0.0, 0.0, false).ticks().is_empty());
        assert!(!Scale::of(0.0, 0.0, true).ticks().is_empty());
    }
}
