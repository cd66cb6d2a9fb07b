//! The study's figures.

pub(crate) mod delays;
pub(crate) mod distribution;
pub(crate) mod time_line;
