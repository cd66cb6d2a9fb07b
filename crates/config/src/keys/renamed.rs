//! Keys and tables of earlier versions. They are refused with the new name: nothing is ignored silently.

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

/// The hint for a key `name` in the table at `path`, if it has a new name.
pub(crate) fn hint(path: &str, name: &str) -> Option<String> {
    let table = path.split(['[', '.']).next().unwrap_or_default();
    let found = RENAMED.iter().find(|(place, old, _)| *place == table && *old == name)?;
    let (_, old, new) = found;
    let new = if new.contains('`') { (*new).to_owned() } else { format!("`{new}`") };
    Some(format!("`{old}` is now {new}"))
}
