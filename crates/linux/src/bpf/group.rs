//! One rate for many sockets.

use super::terms::{self, Terms};
use ekiden_model::scheduler::Lane;
use ekiden_model::units::Rate;
use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Groups that the programs have place for.
const GROUPS: u32 = 64;

/// Bytes of `struct member`.
const MEMBER: usize = 12;

/// Bytes of `struct group`.
const GROUP: usize = 216;

/// What the programs share with us.
#[derive(Debug)]
pub(super) struct Maps {
    /// What was agreed, by the group's number.
    agreements: MapHandle,
    /// What became of it.
    groups: MapHandle,
    /// Whose member a socket is.
    members: MapHandle,
    /// Where others find them, too.
    pins: Option<PathBuf>,
}

impl Maps {
    pub(super) const NAMES: [&'static str; 3] = ["agreements", "groups", "members"];

    pub(super) fn of(handles: &mut BTreeMap<String, MapHandle>) -> Option<Self> {
        let [agreements, groups, members] = Self::NAMES.map(|name| handles.remove(name));
        Some(Self { agreements: agreements?, groups: groups?, members: members?, pins: None })
    }

    pub(super) fn open(pins: &Path) -> libbpf_rs::Result<Self> {
        let open = |name: &str| MapHandle::from_pinned_path(pins.join(name));
        let [agreements, groups, members] = Self::NAMES.map(open);
        let pins = Some(pins.to_owned());
        Ok(Self { agreements: agreements?, groups: groups?, members: members?, pins })
    }

    /// Whether they are what this release writes; another's, pinned before an update, may not be.
    pub(super) fn fit(&self) -> bool {
        self.members.value_size() as usize == MEMBER && self.groups.value_size() as usize == GROUP
    }

    pub(super) fn pin(&mut self, pins: &Path) -> libbpf_rs::Result<()> {
        for (name, map) in
            Self::NAMES.into_iter().zip([&mut self.agreements, &mut self.groups, &mut self.members])
        {
            map.pin(pins.join(name))?;
        }
        Ok(())
    }

    /// Rate and owner of a group.
    fn owner(&self, nth: u32) -> io::Result<(u64, u64)> {
        let value = read(&self.agreements, nth)?;
        Ok((word(&value, 0), word(&value, 4)))
    }
}

/// A rate that sockets share.
#[derive(Clone)]
pub struct Group {
    maps: Arc<Maps>,
    /// What the kernel calls the congestion control.
    control: Arc<str>,
    nth: u32,
    terms: Terms,
}

/// What became of a group so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Sockets that have sent as its members and are not closed.
    pub members: u64,
    /// The weights of those that have more to send.
    pub weights: u64,
    /// What the others send, bits a second.
    pub light: u64,
    /// What all together may send now, bits a second; 0 before anything was sent.
    pub rate: u64,
    /// Bytes delivered so far, with their headers.
    pub delivered: u64,
    /// The path's own losses as far as known, parts of a million.
    pub losses: u32,
    /// How often less was sent, since what was sent did not arrive or waited too long.
    pub reactions: u32,
    /// How often that was taken back.
    pub undone: u32,
}

impl Group {
    /// Takes one that nobody has.
    pub(super) fn claim(maps: &Arc<Maps>, control: &Arc<str>, terms: Terms) -> io::Result<Self> {
        // two processes that share pinned programs do not take the same one
        let lock = maps.pins.as_deref().map(File::open).transpose()?;
        if let Some(lock) = &lock {
            lock.lock()?;
        }
        for nth in 0..GROUPS {
            let (rate, owner) = maps.owner(nth)?;
            // what was left behind by a process that was killed is free
            if rate == 0 || !Path::new(&format!("/proc/{owner}")).exists() {
                let group =
                    Self { maps: Arc::clone(maps), control: Arc::clone(control), nth, terms };
                group.write(terms.bytes(std::process::id()))?;
                return Ok(group);
            }
        }
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, "all 64 groups are in use"))
    }

    pub(super) fn again(&self, terms: Terms) -> io::Result<Self> {
        self.write(terms.bytes(std::process::id()))?;
        Ok(Self { terms, ..self.clone() })
    }

    pub(super) fn give_back(&self) {
        // a map that can be read can be written; a group of the dead is found by their number, too
        let _ = self.write([0; terms::SIZE]);
    }

    fn write(&self, value: [u8; terms::SIZE]) -> io::Result<()> {
        let key = self.nth.to_ne_bytes();
        self.maps.agreements.update(&key, &value, MapFlags::ANY).map_err(io_error)
    }

    /// What was agreed.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// The congestion control that holds it, as the kernel calls it.
    #[must_use]
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Makes a TCP socket a member, with a part of the rate in proportion to `weight` (1 to 1,000), or before the others
    /// in the interactive lane; again: another part from its next acknowledgement on. It has to use [`Group::control`],
    /// and leaves when it closes or uses another one.
    ///
    /// # Errors
    /// When it is no socket, or memory is short.
    pub fn join(&self, socket: BorrowedFd<'_>, weight: u32, lane: Lane) -> io::Result<()> {
        let first = u32::from(lane == Lane::Interactive);
        let value = [self.nth, weight.clamp(1, 1_000), first].map(u32::to_ne_bytes).concat();
        let key = socket.as_raw_fd().to_ne_bytes();
        self.maps.members.update(&key, &value, MapFlags::ANY).map_err(io_error)
    }

    /// Looks at it.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn seen(&self) -> io::Result<Seen> {
        let value = read(&self.maps.groups, self.nth)?;
        let short = |nth: usize| {
            let bytes = value.get(176 + 4 * nth..180 + 4 * nth).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let bits = |bytes: u64| bytes.saturating_mul(8);
        Ok(Seen {
            members: word(&value, 0),
            weights: word(&value, 1),
            light: bits(word(&value, 2)),
            delivered: word(&value, 10),
            rate: bits(word(&value, 12)),
            losses: short(0),
            reactions: short(2),
            undone: short(3),
        })
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.maps, &other.maps) && self.nth == other.nth && self.terms == other.terms
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("nth", &self.nth).field("terms", &self.terms).finish()
    }
}

/// Its rate, as a configuration has it.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate: Rate = self.terms.rate;
        write!(f, "{rate}")
    }
}

fn read(map: &MapHandle, nth: u32) -> io::Result<Vec<u8>> {
    let value = map.lookup(&nth.to_ne_bytes(), MapFlags::ANY).map_err(io_error)?;
    value.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// The `nth` word of eight bytes.
fn word(value: &[u8], nth: usize) -> u64 {
    let bytes = value.get(8 * nth..8 * nth + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

fn io_error(error: libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}
