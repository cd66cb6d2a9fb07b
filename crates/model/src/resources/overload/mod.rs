//! Overload: which resource is low, and the admission of new clients meanwhile.
//!
//! [`Pressure`] says whether any resource passed its threshold (the proxy-pressure study).
//! [`Admission`] decides whether a new client may proceed, with or without closing idle
//! connections, or waits. [`Sources`] shares places and memory among source addresses.
//!
//! A driver's tick, the same as that of [`crate::resources::buffers`]:
//! ```text
//! on_level(resource, used, max)   for each resource it can see
//! while low(): register.evict()   as long as something is idle; subtract it from the levels,
//!                                 or close shortage().connections(open) of them and look again
//! admission.next(…)               until None: those that waited
//! ```

mod admission;
#[cfg(test)]
mod laws;
mod pending;
mod served;
mod source;
#[cfg(test)]
mod source_laws;
mod sources;

pub use admission::{Admission, AdmissionConfig, AdmissionSnapshot, AdmissionVerdict, Ticket};
pub use pending::{Admitted, PendingPlaces};
pub use served::ample_memory;
pub use source::Source;
pub use sources::{PlaceId, Sources, SourcesConfig, SourcesSnapshot};

use crate::units::Share;
use core::fmt;

/// Resources that a new connection uses and that may run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Resource {
    /// File descriptors of this process, against `RLIMIT_NOFILE`; without those of waiting newcomers, and what is set
    /// aside for them.
    Descriptors,
    /// The kernel's TCP socket memory, pages: "TCP mem" of `/proc/net/sockstat` against the second
    /// number of `net.ipv4.tcp_mem`, from which on it cuts buffers (at the third it drops).
    SocketMemory,
    /// This process's memory in bytes, against its cgroup's limit or its own budget.
    OwnMemory,
    /// Connections, against the number that is configured.
    Connections,
    /// Local ports towards the fullest destination, against `net.ipv4.ip_local_port_range` less
    /// reserved.
    Ports,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Descriptors, Self::SocketMemory, Self::OwnMemory, Self::Connections, Self::Ports];

    /// Whether every newcomer needs it. Local ports are short towards one destination alone.
    pub const fn concerns_all(self) -> bool {
        !matches!(self, Self::Ports)
    }
}

crate::units::named!(Resource {
    Descriptors = "descriptors",
    SocketMemory = "socket memory",
    OwnMemory = "memory",
    Connections = "connections",
    Ports = "local ports",
});

/// From where to where a resource is low.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Low when more than this share is in use (`thr`; default 95 %), or all of it.
    pub high: Share,
    /// Low no longer at this share in use (default 90 %); one above `high` counts as `high`.
    pub low: Share,
}

impl Default for Watermarks {
    /// algorithms/buffers A.6; the proxy-pressure study has thresholds and does not say which.
    fn default() -> Self {
        let percent = |n| Share::from_percent(n).unwrap_or(Share::ALL);
        Self { high: percent(95), low: percent(90) }
    }
}

/// The level of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Level {
    /// Which.
    pub resource: Resource,
    /// In use, in the resource's unit.
    pub used: u64,
    /// The most that can be in use; `None` while unlimited or not known, and then never low.
    pub max: Option<u64>,
    /// Whether it is low.
    pub low: bool,
}

/// A resource that is low, and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shortage {
    /// Which.
    pub resource: Resource,
    /// In use, in the resource's unit.
    pub used: u64,
    /// The most that can be in use.
    pub max: u64,
    /// So much is to be given back until it is low no longer; above 0.
    pub excess: u64,
}

impl Shortage {
    /// How many of `open` equal connections to close to be rid of the excess: 1 … `open`.
    pub fn connections(&self, open: u64) -> u64 {
        let (excess, used) = (u128::from(self.excess), u128::from(self.used.max(1)));
        let share = (excess * u128::from(open)).div_ceil(used);
        u64::try_from(share).unwrap_or(open).max(1).min(open)
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, used, max, excess } = self;
        write!(f, "{resource}: {used} of {max} in use, {excess} too many")
    }
}

/// The resources, each with its watermarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressure {
    marks: [Watermarks; 5],
    levels: [Level; 5],
}

impl Pressure {
    /// No level is known yet, so none is low; `marks` for all resources.
    pub fn new(marks: Watermarks) -> Self {
        let levels =
            Resource::ALL.map(|resource| Level { resource, used: 0, max: None, low: false });
        Self { marks: [marks; 5], levels }
    }

    /// Other watermarks for one resource, which count at once.
    pub fn set_watermarks(&mut self, resource: Resource, marks: Watermarks) {
        self.marks[resource as usize] = marks;
        let Level { used, max, .. } = self.levels[resource as usize];
        self.on_level(resource, used, max);
    }

    /// How much of a resource is in use, and of how much; `None` when unlimited or not known.
    pub fn on_level(&mut self, resource: Resource, used: u64, max: Option<u64>) {
        let marks = self.marks[resource as usize];
        let level = &mut self.levels[resource as usize];
        (level.used, level.max) = (used, max);
        level.low = max.is_some_and(|max| {
            let (high, floor) = (marks.high.of(max), release(marks, max));
            let full = used >= max;
            full || if level.low { used > floor } else { used > high }
        });
    }

    /// Whether any resource is low that [concerns all](Resource::concerns_all).
    pub fn low(&self) -> bool {
        self.levels.iter().any(|level| level.low && level.resource.concerns_all())
    }

    /// The low resource with the largest relative excess, of those that [concern all](Resource::concerns_all); of equals
    /// the first in [`Resource::ALL`].
    pub fn shortage(&self) -> Option<Shortage> {
        let mut worst: Option<Shortage> = None;
        let of_all = Resource::ALL.into_iter().filter(|resource| resource.concerns_all());
        for this in of_all.filter_map(|resource| self.shortage_of(resource)) {
            let share =
                |s: &Shortage, other: &Shortage| u128::from(s.excess) * u128::from(other.max);
            if worst.is_none_or(|worst| share(&this, &worst) > share(&worst, &this)) {
                worst = Some(this);
            }
        }
        worst
    }

    /// By how much this resource is low.
    pub fn shortage_of(&self, resource: Resource) -> Option<Shortage> {
        let Level { used, max, low, .. } = self.levels[resource as usize];
        let max = max.filter(|_| low)?;
        let floor = release(self.marks[resource as usize], max);
        // full although the watermark is: at least one is too many
        let excess = used.saturating_sub(floor).max(1);
        Some(Shortage { resource, used, max, excess })
    }

    /// The same where this resource suffices.
    pub fn with_enough(&self, resource: Resource) -> Self {
        let mut other = self.clone();
        other.levels[resource as usize].low = false;
        other
    }

    /// How many connections are open beyond the most that can be, as after a limit was lowered.
    fn over_limit(&self) -> u64 {
        let counted = [Resource::Descriptors, Resource::Connections];
        let over = counted.map(|resource| {
            let Level { used, max, .. } = self.levels[resource as usize];
            max.map_or(0, |max| used.saturating_sub(max))
        });
        over[0].max(over[1])
    }

    /// How each resource stands.
    pub const fn snapshot(&self) -> [Level; 5] {
        self.levels
    }
}

/// What may be in use when a resource stops being low: the low watermark, and never all of it.
fn release(marks: Watermarks, max: u64) -> u64 {
    marks.low.min(marks.high).of(max).min(max.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn marks(high: u64, low: u64) -> Watermarks {
        Watermarks {
            high: Share::from_percent(high).unwrap(),
            low: Share::from_percent(low).unwrap(),
        }
    }

    #[test]
    fn low_above_95_percent_until_90() {
        let mut pressure = Pressure::new(Watermarks::default());
        let told = [189, 190, 191, 185, 181, 180, 190, 200].map(|used| {
            pressure.on_level(Resource::Connections, used, Some(200));
            pressure.low()
        });
        assert_eq!(told, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn any_one_suffices_and_the_worst_is_named() {
        let mut pressure = Pressure::new(Watermarks::default());
        pressure.on_level(Resource::Connections, 10, Some(200));
        pressure.on_level(Resource::Descriptors, 970, Some(1_000));
        let shown = pressure.shortage().unwrap().to_string();
        assert_eq!(shown, "descriptors: 970 of 1000 in use, 70 too many");
        pressure.on_level(Resource::SocketMemory, 99, Some(100));
        let worst = pressure.shortage().unwrap();
        assert_eq!((worst.resource, worst.excess), (Resource::SocketMemory, 9));
        let many = worst.connections(1_000);
        assert_eq!(many, 91, "9 of 99 pages, so a tenth of the connections and some");
        pressure.on_level(Resource::SocketMemory, 90, Some(100));
        pressure.on_level(Resource::Descriptors, 900, Some(1_000));
        assert_eq!((pressure.low(), pressure.shortage()), (false, None));
    }

    #[test]
    fn unlimited_resources_are_never_low_and_full_ones_always() {
        let mut pressure = Pressure::new(marks(100, 100));
        pressure.on_level(Resource::OwnMemory, u64::MAX, None);
        assert!(!pressure.low());
        pressure.on_level(Resource::Connections, 199, Some(200));
        assert!(!pressure.low());
        pressure.on_level(Resource::Connections, 200, Some(200));
        assert_eq!(pressure.shortage().map(|s| s.excess), Some(1));
        pressure.on_level(Resource::Connections, 199, Some(200));
        assert!(!pressure.low());
        pressure.on_level(Resource::OwnMemory, 0, Some(0));
        assert!(pressure.low(), "none of none is free");
    }

    #[test]
    fn ports_towards_one_destination_are_no_matter_of_all() {
        let mut pressure = Pressure::new(Watermarks::default());
        pressure.on_level(Resource::Ports, 100, Some(100));
        assert_eq!((pressure.low(), pressure.shortage()), (false, None));
        assert_eq!(pressure.shortage_of(Resource::Ports).map(|short| short.excess), Some(10));
    }

    proptest! {
        #[test]
        fn each_resource_has_its_hysteresis_and_low_is_their_or(
            high in 0_u64..=100, low in 0_u64..=100, max in 1_u64..1_000,
            steps in proptest::collection::vec((0_usize..5, 0_u64..1_100), 0..100),
        ) {
            let mut pressure = Pressure::new(marks(high, low));
            let mut expected = [false; 5];
            for (which, used) in steps {
                pressure.on_level(Resource::ALL[which], used, Some(max));
                let above = used * 100 > high * max || used >= max;
                let below = used * 100 <= low.min(high) * max && used < max;
                expected[which] = if expected[which] { !below } else { above };
                prop_assert_eq!(pressure.snapshot().map(|level| level.low), expected);
                // ports, the last, are no matter of all
                prop_assert_eq!(pressure.low(), expected[..4].contains(&true));
                let shortage = pressure.shortage();
                prop_assert_eq!(shortage.is_some(), pressure.low());
                if let Some(shortage) = shortage {
                    // given back, it is low no longer
                    let mut after = pressure.clone();
                    let rest = shortage.used.saturating_sub(shortage.excess);
                    after.on_level(shortage.resource, rest, Some(max));
                    prop_assert!(!after.snapshot()[shortage.resource as usize].low);
                }
            }
        }
    }
}
