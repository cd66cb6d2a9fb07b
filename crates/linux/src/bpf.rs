//! Congestion controls of our own inside the kernel's TCP, as BPF programs: rate-holding and Westwood+.
//!
//! ```text
//! Loaded::open(control, pins)     what somebody with the privilege has put there, or
//! Loaded::load(control)           registered as long as this lives, and as the sockets that use it do
//!   .name()                       for TCP_CONGESTION
//!   .group(key, terms)            one rate for many sockets, given back when nobody has it any more
//!     .agree()                    other terms, for the same key
//!     .join(socket, weight)       before or after it connects; it leaves when it closes
//!     .seen()
//! ```
//! The programs stand in `crates/linux/bpf/`, and were built beforehand (decision 12); libbpf fits them to the
//! running kernel. A registration is held by a descriptor (BPF_F_LINK, Linux 6.4), so that nothing is left of a
//! process however it ends: its name is free at once, and sockets that still use the programs keep them until they
//! close. Where the name is taken, as by another relay, a number is added.

mod group;
mod missing;
mod owner;
mod pins;
mod terms;

pub use group::{Group, Seen};
pub use missing::{Missing, Needs};
pub use pins::{PINS, pin, pinned, unpin};
pub use terms::Terms;

use group::{Claim, Maps};
use libbpf_rs::{ErrorKind, Link, MapCore as _, MapHandle, MapType, ObjectBuilder, PrintLevel};
use pins::Pin;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Holds a rate that was agreed to, across losses that are no congestion (ALGORITHMS E.4).
    Hold,
    /// Westwood+ (ALGORITHMS C.8).
    Westwood,
}

/// As many as could carry a number of one digit.
const NAMES: u8 = 9;

/// libelf reads words where they stand.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static HOLD: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/hold.bpf.o"));
static WESTWOOD: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/westwood.bpf.o"));

impl Control {
    /// All.
    pub const ALL: [Self; 2] = [Self::Hold, Self::Westwood];

    /// The word for it in a leg's `congestion`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Westwood => "westwood",
        }
    }

    /// The one that `word` names.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.word() == word)
    }

    /// The one that the kernel calls `name`.
    #[must_use]
    pub fn called(name: &str) -> Option<Self> {
        let has = |control: &Self| (1..=NAMES).any(|nth| control.name(nth) == name);
        Self::ALL.into_iter().find(has)
    }

    /// Whether the kernel's `name` is one that is given here.
    pub(crate) fn is_ours(name: &str) -> bool {
        name.starts_with("ekiden_")
    }

    /// What the kernel calls it where nobody else has; in the object, too.
    const fn first_name(self) -> &'static str {
        match self {
            Self::Hold => "ekiden_hold",
            Self::Westwood => "ekiden_westwood",
        }
    }

    /// The `nth` name, of 15 bytes at most (TCP_CA_NAME_MAX).
    fn name(self, nth: u8) -> String {
        match (self.first_name(), nth) {
            (first, 0 | 1) => first.to_owned(),
            (first, nth) => format!("{}{nth}", &first[..first.len().min(14)]),
        }
    }

    const fn object(self) -> &'static [u8] {
        match self {
            Self::Hold => &HOLD.0,
            Self::Westwood => &WESTWOOD.0,
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A congestion control that the kernel has because of us.
#[derive(Debug)]
pub struct Loaded {
    control: Control,
    name: Arc<str>,
    /// Absent where it was pinned by somebody else.
    link: Option<Link>,
    /// Where it was pinned, and which file that was.
    pin: Option<Arc<Pin>>,
    maps: Option<Arc<Maps>>,
    /// Those that somebody has, by key.
    groups: Mutex<BTreeMap<String, Weak<Claim>>>,
}

impl Loaded {
    /// Loads and registers it.
    ///
    /// # Errors
    /// What is missing.
    pub fn load(control: Control) -> Result<Self, Missing> {
        Needs::look().met()?;
        for nth in 1..=NAMES {
            let name = control.name(nth);
            match Self::register(control, &name) {
                Ok(loaded) => return Ok(loaded),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        Err(Missing::Names(control.first_name().to_owned()))
    }

    /// One that [`pin`] put below `pins`; `None` when there is none.
    ///
    /// # Errors
    /// When it is there and may not be opened, or that cannot be seen.
    pub fn open(control: Control, pins: &Path) -> Result<Option<Self>, Missing> {
        let hidden = |error| Missing::Hidden(format!("{}: {error}", pins.display()));
        let Some(name) = pins::name(control, pins).map_err(hidden)? else { return Ok(None) };
        let maps = match control {
            Control::Hold => {
                let closed =
                    |why: &dyn fmt::Display| Missing::Pins(format!("{}: {why}", pins.display()));
                let maps = Maps::open(pins).map_err(|error| closed(&error))?;
                if !maps.fit() {
                    return Err(closed(&"another release's"));
                }
                Some(Arc::new(maps))
            }
            Control::Westwood => None,
        };
        let pin = Some(Arc::new(Pin::at(pins.join(&name))));
        Ok(Some(Self {
            control,
            name: name.into(),
            link: None,
            pin,
            maps,
            groups: Mutex::default(),
        }))
    }

    fn register(control: Control, name: &str) -> libbpf_rs::Result<Self> {
        quiet();
        let mut open = ObjectBuilder::default().open_memory(control.object())?;
        for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
            if let Some(value) = map.initial_value_mut() {
                rename(value, control.first_name().as_bytes(), name.as_bytes());
            }
        }
        let mut object = open.load()?;
        let mut handles = BTreeMap::new();
        let mut link = None;
        for mut map in object.maps_mut() {
            if map.map_type() == MapType::StructOps {
                link = Some(map.attach_struct_ops()?);
            } else {
                let handle = MapHandle::try_from(&*map)?;
                handles.insert(map.name().to_string_lossy().into_owned(), handle);
            }
        }
        // the kernel keeps what is registered; the object's own descriptors are no longer needed
        let maps = Maps::of(&mut handles).map(Arc::new);
        let groups = Mutex::default();
        Ok(Self { control, name: name.into(), link, pin: None, maps, groups })
    }

    /// Which it is.
    #[must_use]
    pub const fn control(&self) -> Control {
        self.control
    }

    /// What TCP_CONGESTION is to be set to.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether somebody else has pinned it, so that it stays when this process ends.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.link.is_none()
    }

    /// Whether it still is what has its name: what was pinned may have been removed, or put there anew with maps
    /// of its own.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.pin.as_ref().is_none_or(|pin| pin.is_current())
    }

    /// The group of `key`, which may send what `terms` say; where somebody has it already, from [`Group::agree`] on.
    ///
    /// # Errors
    /// `Unsupported` where the congestion control has no groups, `QuotaExceeded` when all 64 are in use.
    pub fn group(&self, key: &str, terms: Terms) -> io::Result<Group> {
        let Some(maps) = &self.maps else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only `hold` holds a rate"));
        };
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, claim| claim.strong_count() > 0);
        let claim = match groups.get(key).and_then(Weak::upgrade) {
            Some(claim) => claim,
            None => {
                let claim = Arc::new(Claim::take(maps, terms)?);
                groups.insert(key.to_owned(), Arc::downgrade(&claim));
                claim
            }
        };
        Ok(Group::new(claim, &self.name, self.pin.as_ref(), terms))
    }
}

/// Puts another name where the object has its own.
fn rename(value: &mut [u8], from: &[u8], to: &[u8]) {
    let place = value.windows(from.len()).position(|window| window == from);
    if let Some(place) = place.and_then(|at| value.get_mut(at..at + 16)) {
        place.fill(0);
        place.iter_mut().zip(to.iter().take(15)).for_each(|(to, from)| *to = *from);
    }
}

thread_local! {
    /// What libbpf said last.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Lines of it that are kept: the verifier's reason is among them.
const LINES: usize = 6;

/// Has libbpf print nothing; what it would is kept.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    });
    SAID.take();
}

fn keep(_: PrintLevel, text: String) {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    SAID.with_borrow_mut(|said| {
        said.extend(lines.map(str::to_owned));
        said.drain(..said.len().saturating_sub(LINES));
    });
}

/// Not a privilege that this process lacks, which was looked at before: the verifier or a security module said no.
fn refused(error: &libbpf_rs::Error) -> Missing {
    // the chain from the call to the kernel's answer, in one line
    let mut text = format!("{error:#}");
    for line in SAID.take() {
        text.push_str("; ");
        text.push_str(&line);
    }
    Missing::Refused(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        for control in Control::ALL {
            let names: std::collections::BTreeSet<_> =
                (1..=NAMES).map(|nth| control.name(nth)).collect();
            assert_eq!(names.len(), usize::from(NAMES));
            assert!(names.iter().all(|name| name.len() <= 15 && name.starts_with("ekiden_")));
            assert_eq!(Control::named(control.word()), Some(control));
            assert!(names.iter().all(|name| Control::called(name) == Some(control)));
        }
        assert_eq!((Control::named("bbr"), Control::called("bbr")), (None, None));
    }

    #[test]
    fn what_the_kernel_refuses_is_told_with_what_libbpf_said_of_it() {
        quiet();
        keep(PrintLevel::Warn, "begin\n1\n2\n3\n\n4\n".into());
        keep(PrintLevel::Warn, "R1 invalid mem access\nend\n".into());
        let Missing::Refused(text) = refused(&libbpf_rs::Error::from_raw_os_error(libc::EACCES))
        else {
            panic!("a privilege was looked at before");
        };
        assert!(text.ends_with("13); 1; 2; 3; 4; R1 invalid mem access; end"), "{text}");
    }

    #[test]
    fn a_name_is_replaced_wholly() {
        let mut value = [0; 40];
        value[9..20].copy_from_slice(b"ekiden_hold");
        rename(&mut value, b"ekiden_hold", b"short");
        assert_eq!(&value[9..25], b"short\0\0\0\0\0\0\0\0\0\0\0");
    }
}
