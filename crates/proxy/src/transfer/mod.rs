//! Bytes from one end of a connection to the other, in both directions.

pub(crate) mod backlog;
pub(crate) mod budget;
pub(crate) mod buffered;
pub(crate) mod end;
pub(crate) mod pipe;
pub(crate) mod pump;
pub(crate) mod records;
pub(crate) mod rejection;
pub(crate) mod relay;
pub(crate) mod scratch;
pub(crate) mod tls;
pub(crate) mod tls_session;
pub(crate) mod transient;
