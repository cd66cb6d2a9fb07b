//! Exit codes, all of them.

/// All is well.
pub const FINE: u8 = 0;
/// What was measured or checked is not fine; for `status` and `top`: no daemon answers.
pub const NOT_FINE: u8 = 1;
/// The arguments are wrong; `clap` uses the same.
pub const USAGE: u8 = 2;
/// `EX_UNAVAILABLE`: an address to listen on is taken or not there.
pub const UNAVAILABLE: u8 = 69;
/// `EX_OSERR`: the system refused what a daemon cannot do without.
pub const SYSTEM: u8 = 71;
/// `EX_CANTCREAT`: the control socket or a log file cannot be made.
pub const CANNOT_CREATE: u8 = 73;
/// `EX_CONFIG`: the configuration has errors, or is not safe.
pub const CONFIGURATION: u8 = 78;
