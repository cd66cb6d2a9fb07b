//! Paths that change, or treat packets unequally.

mod fades;
mod marks;
