//! Requests of people at browsers: documents with embedded objects, and the pauses between.
//!
//! ```text
//! page:  main document · active OFF · embedded · active OFF · embedded … · inactive OFF (thinking)
//! ```
//! SURGE (Barford and Crovella, SIGMETRICS 1998) with the parameters that algorithms/buffers A.8
//! gives from memory, and a second set from public models of web clusters. The proxy-pressure study
//! names neither.

use super::distributions::{log_normal, normal, uniform};
use crate::rng::Rng;
use crate::units::{Bytes, Span};
use alloc::vec::Vec;

/// A body by one distribution, a tail by another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// μ of ln bytes of the body.
    pub mu: f64,
    /// σ of ln bytes of the body.
    pub sigma: f64,
    /// Share of documents in the tail, 0 … 1.
    pub tail: f64,
    /// Where the tail begins, and where the body is cut, bytes.
    pub from: f64,
    /// α of the tail (Pareto).
    pub alpha: f64,
    /// Nothing is larger, bytes.
    pub most: f64,
}

/// How long a person stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Session {
    /// For good.
    Endless,
    /// So many pages: inverse Gaussian, mean μ and shape λ.
    Pages {
        /// μ.
        mean: f64,
        /// λ.
        shape: f64,
    },
}

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surge {
    /// Main documents.
    pub main: Sizes,
    /// Embedded ones.
    pub embedded: Sizes,
    /// α of the number of embedded references (Pareto from 1, rounded down).
    pub references: f64,
    /// No page has more.
    pub most_references: u32,
    /// Between two documents of a page (Weibull): scale in seconds, shape, longest.
    pub active: (f64, f64, Span),
    /// Between two pages (Pareto): least in seconds, α, longest.
    pub inactive: (f64, f64, Span),
    /// Pages before another person takes the place.
    pub session: Session,
}

/// A page to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Sizes: the main document, then what is embedded.
    pub documents: Vec<Bytes>,
    /// Pauses between them: one fewer than documents.
    pub active: Vec<Span>,
    /// Until the next page.
    pub inactive: Span,
}

impl Surge {
    /// SURGE's own parameters (algorithms/buffers A.8's table).
    pub const fn published() -> Self {
        let sizes =
            Sizes { mu: 9.357, sigma: 1.318, tail: 0.07, from: 133e3, alpha: 1.1, most: 1e8 };
        Self {
            main: sizes,
            embedded: sizes,
            references: 2.43,
            most_references: 50,
            active: (1.46, 0.382, Span::from_secs(10)),
            inactive: (1.0, 1.5, Span::from_secs(60)),
            session: Session::Endless,
        }
    }

    /// The web clusters' set (algorithms/buffers A.8's alternative). The tail's share and
    /// beginning, 7 % and 10 kB, are chosen here; active pauses and bounds are SURGE's.
    pub const fn clusters() -> Self {
        let most = 1e8;
        Self {
            main: Sizes { mu: 7.63, sigma: 1.001, tail: 0.07, from: 10e3, alpha: 1.0, most },
            embedded: Sizes { mu: 8.215, sigma: 1.46, tail: 0.0, from: most, alpha: 1.0, most },
            references: 1.33,
            inactive: (1.0, 1.4, Span::from_secs(60)),
            session: Session::Pages { mean: 3.86, shape: 9.46 },
            ..Self::published()
        }
    }

    /// The next page to request.
    pub fn page(&self, rng: &mut Rng) -> Page {
        let references =
            pareto(rng, 1.0, self.references, f64::from(self.most_references)) as usize;
        let mut documents = Vec::with_capacity(references + 1);
        documents.push(self.main.draw(rng));
        documents.extend((0..references).map(|_| self.embedded.draw(rng)));
        let (scale, shape, most) = self.active;
        let active =
            (0..references).map(|_| Span::from_secs_f64(weibull(rng, scale, shape)).min(most));
        let active = active.collect();
        let (least, alpha, most) = self.inactive;
        let inactive = Span::from_secs_f64(pareto(rng, least, alpha, most.as_secs_f64()));
        Page { documents, active, inactive }
    }

    /// After how many pages somebody else comes; `None` for never.
    pub fn pages(&self, rng: &mut Rng) -> Option<u32> {
        match self.session {
            Session::Endless => None,
            Session::Pages { mean, shape } => {
                Some((inverse_gaussian(rng, mean, shape) as u32).max(1))
            }
        }
    }
}

impl Sizes {
    /// One document. Body and tail take the same steps of the generator.
    pub fn draw(&self, rng: &mut Rng) -> Bytes {
        let in_tail = uniform(rng) < self.tail;
        let body = log_normal(rng, self.mu, self.sigma).min(self.from);
        let tail = pareto(rng, self.from, self.alpha, self.most);
        let size = if in_tail { tail } else { body };
        Bytes::new((size.min(self.most) as u64).max(1))
    }

    /// Expected bytes: the log-normal body cut at the tail's beginning, and the Pareto tail cut at
    /// the largest.
    pub fn mean(&self) -> f64 {
        let phi = |x: f64| 0.5 * libm::erfc(-x / core::f64::consts::SQRT_2);
        let at = (libm::log(self.from) - self.mu) / self.sigma;
        let whole = libm::exp(self.mu + self.sigma * self.sigma / 2.0);
        let body = whole * phi(at - self.sigma) + self.from * phi(-at);
        body * (1.0 - self.tail) + cut_pareto_mean(self.from, self.alpha, self.most) * self.tail
    }
}

/// E of a Pareto whose values above `most` count as `most`.
fn cut_pareto_mean(least: f64, alpha: f64, most: f64) -> f64 {
    let ratio = most / least;
    if libm::fabs(alpha - 1.0) < 1e-9 {
        return least * (1.0 + libm::log(ratio));
    }
    least * (alpha - libm::pow(ratio, 1.0 - alpha)) / (alpha - 1.0)
}

/// Pareto by inversion, at most `most`: P(X > x) = (least / x)^α. One step.
fn pareto(rng: &mut Rng, least: f64, alpha: f64, most: f64) -> f64 {
    (least * libm::pow(1.0 - uniform(rng), -1.0 / alpha)).min(most)
}

/// Weibull by inversion. E = scale · Γ(1 + 1/shape). One step.
fn weibull(rng: &mut Rng, scale: f64, shape: f64) -> f64 {
    scale * libm::pow(-libm::log(1.0 - uniform(rng)), 1.0 / shape)
}

/// Inverse Gaussian (Michael, Schucany and Haas 1976). E = mean, variance mean³ / shape. Three steps.
fn inverse_gaussian(rng: &mut Rng, mean: f64, shape: f64) -> f64 {
    let y = normal(rng);
    let y = mean * y * y;
    let x = mean + mean * (y - libm::sqrt(y * (4.0 * shape + y))) / (2.0 * shape);
    if uniform(rng) <= mean / (mean + x) { x } else { mean * mean / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 200_000;

    fn mean(mut draw: impl FnMut(&mut Rng) -> f64) -> f64 {
        let mut rng = Rng::new(5);
        (0..N).map(|_| draw(&mut rng)).sum::<f64>() / f64::from(N)
    }

    fn near(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() <= share, "{found} instead of {expected}");
    }

    #[test]
    fn distributions_have_their_means() {
        // the tail of α = 1.1 is so heavy that its mean comes slowly, even cut
        near(mean(|rng| pareto(rng, 1.0, 1.5, 60.0)), cut_pareto_mean(1.0, 1.5, 60.0), 0.01);
        near(mean(|rng| pareto(rng, 1.0, 1.0, 60.0)), cut_pareto_mean(1.0, 1.0, 60.0), 0.02);
        near(mean(|rng| pareto(rng, 1.0, 1.1, 100.0)), cut_pareto_mean(1.0, 1.1, 100.0), 0.02);
        near(mean(|rng| weibull(rng, 2.0, 1.0)), 2.0, 0.01);
        // Γ(1 + 1/0.382) = 3.7426
        near(mean(|rng| weibull(rng, 1.46, 0.382)), 1.46 * libm::tgamma(1.0 + 1.0 / 0.382), 0.05);
        near(mean(|rng| inverse_gaussian(rng, 3.86, 9.46)), 3.86, 0.01);
        let squares = mean(|rng| inverse_gaussian(rng, 3.86, 9.46).powi(2));
        near(squares - 3.86 * 3.86, 3.86_f64.powi(3) / 9.46, 0.05);
    }

    #[test]
    fn documents_are_as_large_as_said() {
        for sizes in [Surge::published().main, Surge::clusters().main, Surge::clusters().embedded] {
            // without the last decade of the tail, whose few draws are half of the mean
            let sizes = Sizes { most: 1e6, from: sizes.from.min(1e6), ..sizes };
            near(mean(|rng| sizes.draw(rng).as_u64() as f64), sizes.mean(), 0.02);
        }
        let sizes = Surge::published().main;
        // e^(9.357 + 1.318²/2) = 27.6 kB of the body, 23.7 kB when cut; and 7 % of 777 kB
        near(sizes.mean(), 76.4e3, 0.001);
        let large = mean(|rng| f64::from(sizes.draw(rng).as_u64() >= 133_000));
        let beyond = 0.93 * 0.5 * libm::erfc((libm::log(133e3) - 9.357) / 1.318 / 2.0_f64.sqrt());
        near(large, 0.07 + beyond, 0.02);
    }

    #[test]
    fn pages_are_whole() {
        let mut rng = Rng::new(1);
        for surge in [Surge::published(), Surge::clusters()] {
            let mut references = 0;
            for _ in 0..20_000 {
                let page = surge.page(&mut rng);
                assert_eq!(page.documents.len(), page.active.len() + 1);
                assert!((2..=51).contains(&page.documents.len()));
                assert!(
                    page.documents.iter().all(|size| (1..=100_000_000).contains(&size.as_u64()))
                );
                assert!(page.active.iter().all(|pause| *pause <= Span::from_secs(10)));
                assert!(
                    page.inactive >= Span::from_secs(1) && page.inactive <= Span::from_secs(60)
                );
                references += page.active.len();
            }
            assert!(references > 20_000);
            let pages = surge.pages(&mut rng);
            assert_eq!(pages.is_none(), surge.session == Session::Endless);
            assert_ne!(pages, Some(0));
        }
    }

    #[test]
    fn draws_are_the_same_on_every_machine() {
        let mut rng = Rng::new(1);
        let page = Surge::published().page(&mut rng);
        let sizes: Vec<_> = page.documents.iter().map(|size| size.as_u64()).collect();
        assert_eq!((sizes, page.inactive.as_nanos()), (std::vec![11_414, 249], 5_403_234_503));
    }
}
