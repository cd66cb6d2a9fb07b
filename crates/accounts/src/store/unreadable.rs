//! Accounts whose rows cannot be read. One such row leaves out that account, and no other.

use crate::account::{Account, AccountId, Attributes, Device};

/// An account that is in the database and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableAccount {
    /// Its number; `None` where that cannot be read.
    pub id: Option<AccountId>,
    /// Its name; empty where that cannot be read.
    pub name: String,
    /// The table and column at fault, such as `account.attributes`.
    pub column: &'static str,
    /// What is wrong with it.
    pub why: String,
    /// Its devices, as far as they can be read.
    pub devices: Vec<Device>,
}

impl UnreadableAccount {
    /// What it is called: its name, or its number where the name is not allowed.
    pub fn label(&self) -> String {
        match (Account::check_name(&self.name), self.id) {
            (Ok(()), _) => self.name.clone(),
            (Err(_), Some(id)) => id.to_string(),
            (Err(_), None) => "without a number".to_owned(),
        }
    }

    /// A disabled account with its devices, for a directory: its limits are not known, so nobody may
    /// come in by it. Left out, its addresses would pass as those of no account. `None` without a
    /// number.
    pub fn barred(&self) -> Option<Account> {
        let attributes = Attributes { disabled: true, ..Attributes::default() };
        Some(Account {
            id: self.id?,
            name: self.label(),
            devices: self.devices.clone(),
            attributes,
        })
    }

    /// What to try, for the operator.
    pub const REMEDY: &str = "correct that column in the database, or remove the account with \
         `ekiden account remove` and add it again";
}

impl std::fmt::Display for UnreadableAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "account {:?}: {}: {}", self.label(), self.column, self.why)
    }
}
