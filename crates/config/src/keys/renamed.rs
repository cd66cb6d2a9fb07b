//! Keys and tables of earlier versions, and those of accounts by another way. They are refused with what to write:
//! nothing is ignored silently.

/// Where a key stood, its old name, and what to write instead.
const RENAMED: &[(&str, &str, &str)] = &[
    ("", "household", "[[account]]"),
    ("", "households", "[sharing]"),
    ("sharing", "strangers", "unclaimed"),
    ("account", "relays", "peers"),
    ("account", "when_spent", "on_quota_exceeded"),
    ("account", "slower", "throttle_rate"),
    ("account", "period", "part of `quota`: quota = \"100 GB/30 d\""),
    ("rule", "relays", "peers"),
    ("leg", "unsent_low_water", "notsent_lowat"),
    ("management", "metrics_households", "metrics_accounts"),
];

/// What accounts of `ekiden account` have, and those of `[[account]]` have not.
const OF_COMMANDS: [&str; 3] = ["zone", "hours", "expires"];

/// The hint for a key `name` in the table at `path`, if it has a new name or another place.
pub(crate) fn hint(path: &str, name: &str) -> Option<String> {
    let table = path.split(['[', '.']).next().unwrap_or_default();
    if table == "account" && OF_COMMANDS.contains(&name) {
        return Some(format!(
            "`{name}` belongs to accounts of `ekiden account add`; those of [[account]] have a quota of fixed periods, such as \"100 GB/30 d\""
        ));
    }
    let found = RENAMED.iter().find(|(place, old, _)| *place == table && *old == name)?;
    let (_, old, new) = found;
    let new = if new.contains('`') { (*new).to_owned() } else { format!("`{new}`") };
    Some(format!("`{old}` is now {new}"))
}
