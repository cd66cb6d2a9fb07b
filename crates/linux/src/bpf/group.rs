//! One rate for many sockets.

use super::owner;
use super::pins::{self, Pin};
use super::terms::{GroupState, Terms};
use ekiden_model::control::scheduler::Lane;
use ekiden_model::units::Rate;
use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};
use std::collections::BTreeMap;
use std::fmt;
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

/// Words of `struct agreement`.
const RATE: usize = 0;
const OWNER: usize = 4;

/// Memory shared with the programs.
#[derive(Debug)]
pub(super) struct Maps {
    agreements: MapHandle,
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

    /// Whether the maps are this release's; those of another, pinned before an update, may not be.
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

    fn agreed(&self, nth: u32) -> io::Result<Vec<u8>> {
        read(&self.agreements, nth)
    }

    fn agree(&self, nth: u32, value: &[u8]) -> io::Result<()> {
        self.agreements.update(&nth.to_ne_bytes(), value, MapFlags::ANY).map_err(io_error)
    }

    /// An unused one: its rate was never set, or its owner is gone.
    fn free(&self) -> io::Result<Option<u32>> {
        let mut left = None;
        for nth in 0..GROUPS {
            let agreed = self.agreed(nth)?;
            if word(&agreed, RATE) != 0 && owner::is_alive(word(&agreed, OWNER)) {
                continue;
            }
            // rather one in which no connection still closes
            if word(&read(&self.groups, nth)?, 0) == 0 {
                return Ok(Some(nth));
            }
            left.get_or_insert(nth);
        }
        Ok(left)
    }
}

#[derive(Debug)]
pub(super) struct Claim {
    maps: Arc<Maps>,
    nth: u32,
}

impl Claim {
    pub(super) fn take(maps: &Arc<Maps>, terms: Terms) -> io::Result<Self> {
        // two processes that share pinned programs do not take the same one
        let lock = maps.pins.as_deref().map(pins::lock).transpose()?;
        let full = || io::Error::new(io::ErrorKind::QuotaExceeded, "all 64 groups are in use");
        let nth = maps.free()?.ok_or_else(full)?;
        maps.agree(nth, &terms.bytes(owner::own()))?;
        drop(lock);
        Ok(Self { maps: Arc::clone(maps), nth })
    }
}

impl Drop for Claim {
    /// Whoever comes next may have it. The rate stays: connections that close still send.
    fn drop(&mut self) {
        let Ok(mut agreed) = self.maps.agreed(self.nth) else { return };
        if word(&agreed, OWNER) == owner::own()
            && let Some(place) = agreed.get_mut(8 * OWNER..)
        {
            place.copy_from_slice(&owner::NOBODY.to_ne_bytes());
            // a map that can be read can be written; a group of the dead is found by their number, too
            let _ = self.maps.agree(self.nth, &agreed);
        }
    }
}

/// A rate that sockets share. It is freed with its last reference.
#[derive(Clone)]
pub struct Group {
    claim: Arc<Claim>,
    /// The kernel's name for the congestion control.
    control: Arc<str>,
    pin: Option<Arc<Pin>>,
    terms: Terms,
}

impl Group {
    pub(super) fn new(
        claim: Arc<Claim>,
        control: &Arc<str>,
        pin: Option<&Arc<Pin>>,
        terms: Terms,
    ) -> Self {
        Self { claim, control: Arc::clone(control), pin: pin.cloned(), terms }
    }

    /// Its terms hold from now on, live connections included. Fails when the kernel does not let
    /// us.
    pub fn agree(&self) -> io::Result<()> {
        self.claim.maps.agree(self.claim.nth, &self.terms.bytes(owner::own()))
    }

    /// Whether [`Group::control`] still has this group: others may have removed or replaced pinned
    /// maps.
    pub fn is_current(&self) -> bool {
        self.pin.as_ref().is_none_or(|pin| pin.is_current())
    }

    /// The terms.
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// The congestion control that holds it, as the kernel calls it.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Makes a TCP socket a member, with a part of the rate in proportion to `weight` (1 to 1,000),
    /// or before the others in the interactive lane; again: another part from its next
    /// acknowledgement on. It must use [`Group::control`], and leaves when it closes or uses
    /// another. Errors: no socket, or memory is short.
    pub fn join(&self, socket: BorrowedFd<'_>, weight: u32, lane: Lane) -> io::Result<()> {
        let first = u32::from(lane == Lane::Interactive);
        let value = [self.claim.nth, weight.clamp(1, 1_000), first].map(u32::to_ne_bytes).concat();
        let key = socket.as_raw_fd().to_ne_bytes();
        self.claim.maps.members.update(&key, &value, MapFlags::ANY).map_err(io_error)
    }

    /// Looks at it. Fails when the kernel does not let us.
    pub fn seen(&self) -> io::Result<GroupState> {
        let value = read(&self.claim.maps.groups, self.claim.nth)?;
        let short = |nth: usize| {
            let bytes = value.get(176 + 4 * nth..180 + 4 * nth).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let bits = |bytes: u64| bytes.saturating_mul(8);
        Ok(GroupState {
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
        Arc::ptr_eq(&self.claim, &other.claim) && self.terms == other.terms
    }
}

impl Eq for Group {}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("nth", &self.claim.nth).field("terms", &self.terms).finish()
    }
}

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
