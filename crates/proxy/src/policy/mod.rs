//! Who may come in, where they may go and by which route, and how much of the relay they may use.

pub mod access;
pub mod accounts;
mod denied;
mod embedded;
pub(crate) mod own_addresses;
pub mod quota;
pub(crate) mod route;
pub(crate) mod special_addresses;
pub(crate) mod speed_tests;
pub mod trust;
pub(crate) mod upstream;
