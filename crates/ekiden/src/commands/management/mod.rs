//! Who may use the management port: its token, and operators.

pub(crate) mod operator;
pub(crate) mod token;
