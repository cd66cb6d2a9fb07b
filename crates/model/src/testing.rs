//! What the tests of this crate share.

pub(crate) use crate::rng::Rng;
pub(crate) use crate::units::{Bytes, Rate, Share, Span, Time};
pub(crate) use proptest::prelude::*;
pub(crate) use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub(crate) use std::string::{String, ToString};
pub(crate) use std::vec::Vec;
pub(crate) use std::{format, vec};

pub(crate) const fn ms(n: u64) -> Span {
    Span::from_millis(n)
}

/// An instant in milliseconds.
pub(crate) fn at(n: u64) -> Time {
    Time::ZERO + ms(n)
}
