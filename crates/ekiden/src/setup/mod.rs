//! Setting a machine up: where files go, how a configuration is changed, what stands in the way.

pub(crate) mod clock;
pub(crate) mod document;
pub(crate) mod file;
pub(crate) mod lan;
pub(crate) mod place;
pub(crate) mod ports;
pub(crate) mod running;
pub(crate) mod terminal;
