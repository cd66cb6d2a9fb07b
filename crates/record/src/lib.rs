//! What simulator, emulator and lab write: histograms, CSV, pcapng, fingerprints.
//!
//! This crate never measures anything and never opens a file: it is given values and a writer.

pub mod csv;
pub mod fingerprint;
pub mod histogram;
pub mod pcapng;
