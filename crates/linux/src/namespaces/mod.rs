//! Namespaces of this program's own: networks, mounts, and the process that ends them.

pub mod mounts;
pub mod netns;
pub mod sandbox;
