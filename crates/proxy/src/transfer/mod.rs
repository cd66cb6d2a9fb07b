//! Bytes from one socket to another, in both directions.

pub(crate) mod budget;
pub(crate) mod buffered;
pub(crate) mod pump;
pub(crate) mod rejection;
pub(crate) mod relay;
pub(crate) mod scratch;
pub(crate) mod tls;
