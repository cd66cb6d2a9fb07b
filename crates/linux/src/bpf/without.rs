//! The same interface in a build without BPF: nothing can be loaded, so no [`Loaded`] and no [`Group`] exist.

use super::{Control, GroupState, Missing, Terms};
use ekiden_model::control::scheduler::Lane;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Programs in the kernel, of which there are none.
#[derive(Debug)]
pub enum Loaded {}

#[allow(missing_docs)] // as with the feature
impl Loaded {
    pub fn load(_: Control) -> Result<Self, Missing> {
        Err(Missing::Feature)
    }

    pub fn open(_: Control, _: &Path) -> Result<Option<Self>, Missing> {
        Ok(None)
    }

    pub fn control(&self) -> Control {
        match *self {}
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub fn is_pinned(&self) -> bool {
        match *self {}
    }

    pub fn is_current(&self) -> bool {
        match *self {}
    }

    pub fn group(&self, _: &str, _: Terms) -> io::Result<Group> {
        match *self {}
    }
}

/// A rate that sockets share, of which there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {}

#[allow(missing_docs)] // as with the feature
impl Group {
    pub fn agree(&self) -> io::Result<()> {
        match *self {}
    }

    pub fn is_current(&self) -> bool {
        match *self {}
    }

    pub fn terms(&self) -> Terms {
        match *self {}
    }

    pub fn control(&self) -> &str {
        match *self {}
    }

    pub fn join(&self, _: BorrowedFd<'_>, _: u32, _: Lane) -> io::Result<()> {
        match *self {}
    }

    pub fn seen(&self) -> io::Result<GroupState> {
        match *self {}
    }
}

impl fmt::Display for Group {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Fails: there is nothing to pin.
pub fn pin(_: Control, _: &Path, _: Option<(u32, u32)>) -> Result<(String, bool), Missing> {
    Err(Missing::Feature)
}

/// None.
pub fn pinned(_: &Path) -> Vec<(Control, Result<String, Missing>)> {
    Vec::new()
}

/// None was removed.
pub fn unpin(_: &Path) -> io::Result<Vec<Control>> {
    Ok(Vec::new())
}
