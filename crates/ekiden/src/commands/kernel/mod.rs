//! Commands about what the daemon sets in the kernel.

pub(crate) mod bpf;
pub(crate) mod gateway;
