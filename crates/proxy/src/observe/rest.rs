//! Checks that are left out while nothing moves.

/// Of the checks at rest so many in a row are left out. One in ten is made all the same, because heads and the
/// relay's own answers do not count as moved bytes.
const LEFT_OUT: u8 = 9;

/// Whether a leg or a connection is at rest, and how many of its checks were left out since the last one.
#[derive(Debug, Default)]
pub(crate) struct Rest(Option<u8>);

impl Rest {
    /// A check was made, and found nothing under way (`at_rest`) or something.
    pub(crate) fn on_check(&mut self, at_rest: bool) {
        self.0 = at_rest.then_some(0);
    }

    /// The next check is made.
    pub(crate) const fn wake(&mut self) {
        self.0 = None;
    }

    pub(crate) const fn is_at_rest(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the check that is due now is left out; counts it if so.
    pub(crate) const fn leaves_out(&mut self) -> bool {
        match &mut self.0 {
            Some(left_out) if *left_out < LEFT_OUT => {
                *left_out += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_rest_one_check_in_ten_is_made() {
        let mut rest = Rest::default();
        assert!(!rest.leaves_out() && !rest.is_at_rest(), "nothing was checked yet");
        rest.on_check(true);
        let made: Vec<_> = (1..=30)
            .filter(|_| {
                let made = !rest.leaves_out();
                if made {
                    rest.on_check(true);
                }
                made
            })
            .collect();
        assert_eq!(made, [10, 20, 30]);
        rest.wake();
        assert!(!rest.leaves_out());
        rest.on_check(false);
        assert!(!rest.leaves_out() && !rest.is_at_rest());
    }
}
