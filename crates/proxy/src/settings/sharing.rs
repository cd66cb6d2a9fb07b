//! Accounts in the configuration, their limits, and the relay's own rates.

use ekiden_model::units::Rate;
use ipnet::IpNet;

pub use ekiden_model::resources::quota::{Allowance, ExceededAction, Limits};

/// Accounts that are recognized by address or peer, and the rates that all clients share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Send rate of all clients together. Default `None`: no limit.
    pub uplink: Option<Rate>,
    /// Receive rate of all clients together. Default `None`: no limit.
    pub downlink: Option<Rate>,
    /// Clients that no account claims.
    pub unclaimed: Unclaimed,
    /// The accounts.
    pub list: Vec<Account>,
}

/// How to treat clients that no account claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unclaimed {
    /// Without limits of their own; at the relay's full rate they share as one account of weight 1.
    /// The default.
    #[default]
    Allow,
    /// Refuse them.
    Refuse,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Client addresses of this account; the longest matching prefix wins.
    pub addresses: Vec<IpNet>,
    /// Peers whose flows belong to this account.
    pub peers: Vec<String>,
    /// Its limits.
    pub limits: Limits,
}
