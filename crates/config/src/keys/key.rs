//! A key of the configuration: declared once, and reading, checking, the example file and
//! `config show` all follow from the declaration.

use crate::value::Value;
use crate::value::kind::Kind;

/// One key of a table that is read into a `T`.
pub(crate) struct Key<T: 'static> {
    /// Its name in the table.
    pub name: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// The word that means "not set", when it may be.
    pub unset: Option<&'static str>,
    /// What it is and what it does.
    pub what: &'static str,
    /// What it costs or risks.
    pub cost: &'static str,
    /// Who should change it, and when.
    pub who: &'static str,
    /// Its value in a `T`; in the default `T`, its default.
    pub get: fn(&T) -> Value,
    /// Puts a value into a `T`.
    pub put: fn(&mut T, Value),
}

impl<T> Key<T> {
    /// The value in `of`, as TOML.
    pub(crate) fn toml(&self, of: &T) -> String {
        (self.get)(of).toml(self.unset.unwrap_or_default())
    }
}

/// Declares the keys of a table: where in a `$type` their fields are, then
/// `key = field: kind, "unset" or None, what, cost, who;`.
macro_rules! keys {
    ($type:ty, |$of:ident| $place:expr; $($name:ident = $($field:ident).+: $kind:expr, $unset:expr, $what:literal, $cost:literal, $who:literal;)*) => {
        &[$($crate::keys::key::Key::<$type> {
            name: stringify!($name),
            kind: $kind,
            unset: $unset,
            what: $what,
            cost: $cost,
            who: $who,
            get: |$of| $crate::value::Field::get(&$place.$($field).+),
            put: |$of, value| $crate::value::Field::put(&mut $place.$($field).+, value),
        }),*]
    };
}
pub(crate) use keys;
