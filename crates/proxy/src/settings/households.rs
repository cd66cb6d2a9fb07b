//! Households, their limits, and the relay's own rates.

use ekiden_model::units::Rate;
use ipnet::IpNet;

pub use ekiden_model::quota::{Allowance, Limits, Then};

/// Households that are known by where they come from, and what all share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Households {
    /// What all clients together may send. Default `None`: no limit.
    pub uplink: Option<Rate>,
    /// What all clients together may receive. Default `None`: no limit.
    pub downlink: Option<Rate>,
    /// Clients that no household claims.
    pub strangers: Strangers,
    /// The households.
    pub list: Vec<Household>,
}

/// What becomes of clients that no household claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strangers {
    /// They are served, without limits of their own; where the relay's rate is full all of them together are one
    /// household of weight 1. The default.
    #[default]
    Allow,
    /// They are refused.
    Refuse,
}

/// A household.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Household {
    /// Its name.
    pub name: String,
    /// Clients from here are its own; of several that match, the longest prefix decides.
    pub addresses: Vec<IpNet>,
    /// What comes out of the tunnels of these relays is its own too.
    pub relays: Vec<String>,
    /// What it may.
    pub limits: Limits,
}
