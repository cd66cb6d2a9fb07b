//! Programs in the kernel: loaded by this process, or pinned by another.

use super::group::{Claim, Group, Maps};
use super::pins::{self, Pin};
use super::{Control, Missing, NAMES, Needs, Terms};
use libbpf_rs::{ErrorKind, Link, MapCore as _, MapHandle, MapType, ObjectBuilder, PrintLevel};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

/// libelf reads words in place, so they must be aligned.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static HOLD: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/hold.bpf.o"));
static WESTWOOD: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/westwood.bpf.o"));

impl Control {
    pub(super) const fn object(self) -> &'static [u8] {
        match self {
            Self::Hold => &HOLD.0,
            Self::Westwood => &WESTWOOD.0,
        }
    }
}

/// A congestion control that the kernel has because of us.
#[derive(Debug)]
pub struct Loaded {
    control: Control,
    pub(super) name: Arc<str>,
    pub(super) link: Option<Link>,
    /// Where it was pinned, and which file that was.
    pin: Option<Arc<Pin>>,
    pub(super) maps: Option<Arc<Maps>>,
    groups: Mutex<BTreeMap<String, Weak<Claim>>>,
}

impl Loaded {
    /// Loads and registers it. Errors: the missing requirement.
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

    /// One that [`pins::pin`] put below `pins`, if any. Errors: it may not be opened, or that cannot be
    /// seen.
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
        // the kernel keeps the registered programs: the object's own descriptors may close
        let maps = Maps::of(&mut handles).map(Arc::new);
        let groups = Mutex::default();
        Ok(Self { control, name: name.into(), link, pin: None, maps, groups })
    }

    /// Which it is.
    pub const fn control(&self) -> Control {
        self.control
    }

    /// The value for TCP_CONGESTION.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether another process pinned it, so that it outlives this one.
    pub const fn is_pinned(&self) -> bool {
        self.link.is_none()
    }

    /// Whether it still owns its name: pinned programs may have been removed or replaced.
    pub fn is_current(&self) -> bool {
        self.pin.as_ref().is_none_or(|pin| pin.is_current())
    }

    /// The group of `key` with the rate of `terms`; for a group that exists, from [`Group::agree`]
    /// on. Errors: `Unsupported` where the congestion control has no groups, `QuotaExceeded` when
    /// all 64 are in use.
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
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Lines of it that are kept: the verifier's reason is among them.
const LINES: usize = 6;

/// Keeps libbpf's output instead of printing it.
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

/// Privileges were checked before: the verifier or a security module refused.
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
    fn reports_a_kernel_refusal_with_libbpf_output() {
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
