//! Bisection for the smallest number that is enough, on a logarithmic scale.

/// So often may the first bracket be widened, each time by [`WIDER`], before the search gives up.
const WIDENINGS: u32 = 6;
const WIDER: f64 = 4.0;

/// A search by `next` and `tell` in turn, until `next` is `None`; what is enough stays enough above.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    /// Not enough, once it was asked for.
    low: f64,
    low_known: bool,
    /// Enough, once it was asked for.
    high: f64,
    high_known: bool,
    precision: f64,
    widenings: u32,
    asked: f64,
}

impl Search {
    /// Between two guesses above 0; `precision`, above 1, is the factor between the ends of the last bracket.
    pub(crate) fn new(low: f64, high: f64, precision: f64) -> Self {
        Self {
            low,
            low_known: false,
            high,
            high_known: false,
            precision,
            widenings: 0,
            asked: high,
        }
    }

    /// Which number to try; `None` when it is found, or nowhere near.
    pub(crate) fn next(&mut self) -> Option<f64> {
        if self.widenings > WIDENINGS {
            return None;
        }
        self.asked = match (self.low_known, self.high_known) {
            (_, false) => self.high,
            (false, true) => self.low,
            (true, true) if self.high / self.low <= self.precision => return None,
            (true, true) => (self.low * self.high).sqrt(),
        };
        Some(self.asked)
    }

    /// Whether the number that was asked about is enough.
    pub(crate) fn tell(&mut self, enough: bool) {
        if enough {
            self.high = self.asked;
            if self.high_known && !self.low_known {
                self.low = self.asked / WIDER;
                self.widenings += 1;
            }
            self.high_known = true;
        } else {
            self.low = self.asked;
            if !self.high_known {
                self.high = self.asked * WIDER;
                self.widenings += 1;
            }
            self.low_known = true;
        }
    }

    /// The middle of the last bracket; `None` if there was no end.
    pub(crate) fn found(&self) -> Option<f64> {
        (self.low_known && self.high_known).then(|| (self.low * self.high).sqrt())
    }

    /// The highest number that was asked about or would be next.
    pub(crate) fn most(&self) -> f64 {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(search: &mut Search, enough: impl Fn(f64) -> bool) -> u32 {
        let mut asked = 0;
        while let Some(number) = search.next() {
            search.tell(enough(number));
            asked += 1;
        }
        asked
    }

    #[test]
    fn ends_when_every_or_no_value_is_enough() {
        let mut search = Search::new(1.0, 2.0, 1.01);
        assert!(find(&mut search, |_| false) < 10);
        assert_eq!(search.found(), None);
        let mut search = Search::new(1.0, 2.0, 1.01);
        assert!(find(&mut search, |_| true) < 10);
        assert_eq!(search.found(), None);
    }

    proptest! {
        #[test]
        fn finds_the_threshold_to_the_precision(at in 0.01_f64..1000.0, guess in 0.1_f64..10.0, precision in 1.005_f64..1.2) {
            let (low, high) = (at * guess / 4.0, at * guess * 2.0);
            let mut search = Search::new(low, high, precision);
            let asked = find(&mut search, |number| number >= at);
            let found = search.found().unwrap();
            prop_assert!(found <= at * precision && found >= at / precision, "{found} for {at}");
            prop_assert!(asked <= 14, "{asked} probes");
        }
    }
}
