//! The four schemes of the proxy-pressure study as settings of the same values (algorithms/buffers A.7).

use super::{Config, Enough, Policy};
use crate::resources::idle;
use crate::resources::overload::AdmissionConfig;
use crate::units::{Bytes, Span};

/// Which of the study's schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// 1: every buffer 16 KiB, idle connections are kept until their time is over.
    Conventional,
    /// 2: buffers by E2-ATBT.
    Buffers,
    /// 3: and the longest idle connection closed when resources are low.
    Connections,
    /// 4: and the buffers of idle connections halved each second, down to 1 KiB.
    Shrinking,
}

impl Scheme {
    /// In the study's order, 1 to 4.
    pub const ALL: [Self; 4] =
        [Self::Conventional, Self::Buffers, Self::Connections, Self::Shrinking];

    /// Of [`super::Allocator`] with this pool. Every buffer has an explicit size, as in the study.
    pub fn buffers(self, pool: Bytes) -> Config {
        let policy = match self {
            Self::Conventional => Policy::Fixed(Bytes::kib(16)),
            _ => Policy::Shared,
        };
        Config { policy, enough: Enough::Demand, ..Config::new(pool) }
    }

    /// Of [`idle::Register`].
    pub fn idle(self) -> idle::Config {
        let halve_every = (self == Self::Shrinking).then_some(Span::from_secs(1));
        idle::Config { halve_every, ..idle::Config::default() }
    }

    /// Of [`crate::resources::overload::Admission`]. Ticks close idle connections only with
    /// `evict`.
    pub fn admission(self) -> AdmissionConfig {
        AdmissionConfig { evict: self >= Self::Connections, ..AdmissionConfig::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_adds_one_thing() {
        let pool = Bytes::kib(200 * 16);
        let told = Scheme::ALL.map(|scheme| {
            let shared = scheme.buffers(pool).policy == Policy::Shared;
            (shared, scheme.admission().evict, scheme.idle().halve_every.is_some())
        });
        let expected =
            [(false, false, false), (true, false, false), (true, true, false), (true, true, true)];
        assert_eq!(told, expected);
        assert_eq!(Scheme::Conventional.idle().persist, Span::from_secs(15));
    }
}
