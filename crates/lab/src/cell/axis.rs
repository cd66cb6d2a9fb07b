//! What a plan may vary: every axis with its kind of value, so that `8MiB` and `8 MiB` are one cell.

use super::common::COMMON;
use ekiden_model::units::{Bytes, Rate, Share, Span};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::OnceLock;

/// A kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number.
    Whole,
    /// A whole number of bytes, as of an MTU, shown with its unit.
    Packet,
    /// One of these numbers.
    Among(&'static [&'static str]),
    /// A length of time, drawn in milliseconds.
    Span,
    /// A size, drawn in MiB.
    Bytes,
    /// A rate, drawn in Mbit/s.
    Rate,
    /// A share, drawn in per cent.
    Share,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A size, or this word.
    BytesOr(&'static str),
    /// A whole number, or this word.
    WholeOr(&'static str),
}

/// The least and the most that an axis takes, as they are written in plans; an empty one is no bound.
pub type Range = (&'static str, &'static str);

const ANY: Range = ("", "");
/// A packet of 1,500 bytes takes 12 s at this rate: slower ones bring nothing within a cut of 20 s.
pub(crate) const LEAST_RATE: Range = ("1 kbit/s", "");
/// As of every emulated link, and as the length field of an IP packet.
pub const MTU: Range = ("576", "65535");

/// Something that a plan may fix or vary.
#[derive(Debug)]
pub struct Axis {
    /// As in plans and rows.
    pub name: &'static str,
    /// As in figures and tables.
    pub title: &'static str,
    /// What its values are.
    pub kind: ValueKind,
    /// Least and most of them; beyond, a run would yield nothing or not end.
    pub range: Range,
    /// What it does.
    pub about: &'static str,
    /// Values that figures and tables show in other words.
    words: &'static [(&'static str, &'static str)],
}

/// An axis without bounds, whose values are shown as they are written.
pub const fn axis(
    name: &'static str,
    title: &'static str,
    kind: ValueKind,
    about: &'static str,
) -> Axis {
    Axis { name, title, kind, range: ANY, about, words: &[] }
}

impl Axis {
    /// The same with bounds.
    #[must_use]
    pub const fn within(mut self, range: Range) -> Self {
        self.range = range;
        self
    }

    /// The same with other words for some values in figures and tables.
    #[must_use]
    pub const fn words(mut self, words: &'static [(&'static str, &'static str)]) -> Self {
        self.words = words;
        self
    }

    /// A value as figures and tables show it.
    pub fn shown(&self, value: &str) -> String {
        if self.kind == ValueKind::Packet {
            let thousands = value.len().saturating_sub(3);
            let (thousands, rest) = value.split_at_checked(thousands).unwrap_or(("", value));
            let comma = if thousands.is_empty() { "" } else { "," };
            return format!("{thousands}{comma}{rest} B");
        }
        let word = self.words.iter().find(|(own, _)| *own == value);
        word.map_or(value, |(_, word)| *word).to_owned()
    }
}

/// Axes of the registered studies, declared by them: an axis must not import the studies that use it.
static OF_STUDIES: OnceLock<Vec<&'static Axis>> = OnceLock::new();

/// Declares the axes of studies; the first declaration stays.
pub(crate) fn declare(axes: Vec<&'static Axis>) {
    let _first_stays = OF_STUDIES.set(axes);
}

fn of_studies() -> &'static [&'static Axis] {
    #[cfg(test)]
    return OF_STUDIES.get_or_init(|| SAMPLE.iter().collect());
    #[cfg(not(test))]
    OF_STUDIES.get().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
pub(crate) static SAMPLE: &[Axis] = &[axis("jam", "jam", ValueKind::Share, "of the link's rate")];

/// All axes: the common ones, then those of each registered study.
pub fn all() -> impl Iterator<Item = &'static Axis> {
    COMMON.iter().chain(of_studies().iter().copied())
}

/// The axis of this name.
pub fn named(name: &str) -> Option<&'static Axis> {
    all().find(|axis| axis.name == name)
}

/// A name among `known` that `wrong` may have been meant to be.
pub(crate) fn similar_name<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// What may have been meant, or else all that there is.
pub(crate) fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    similar_name(wrong, known.iter().copied()).map_or_else(
        || format!("there are: {}", known.join(", ")),
        |name| format!("did you mean `{name}`?"),
    )
}

impl Axis {
    /// The one way to write a value. Errors: what is wrong with it, and how to write it.
    pub fn canonical(&self, text: &str) -> Result<String, String> {
        fn of<T: FromStr + Display>(text: &str) -> Result<String, String>
        where
            T::Err: Display,
        {
            text.parse::<T>().map(|v| v.to_string()).map_err(|error| error.to_string())
        }
        let written = match self.kind {
            ValueKind::Whole | ValueKind::Packet => {
                whole(text).ok_or_else(|| format!("`{text}` is not a whole number"))
            }
            ValueKind::Among(numbers) => {
                let same = |one: &&&str| one.parse().ok() == text.parse::<f64>().ok();
                let found = numbers.iter().find(same).map(|one| (*one).to_owned());
                found.ok_or_else(|| format!("`{text}` is not one of {}", numbers.join(", ")))
            }
            ValueKind::Span => of::<Span>(text),
            ValueKind::Bytes => of::<Bytes>(text),
            ValueKind::Rate => of::<Rate>(text),
            ValueKind::Share => of::<Share>(text),
            ValueKind::BytesOr(word) if text == word => Ok(text.to_owned()),
            ValueKind::BytesOr(word) => {
                of::<Bytes>(text).map_err(|error| format!("{error}, nor `{word}`"))
            }
            ValueKind::WholeOr(word) if text == word => Ok(text.to_owned()),
            ValueKind::WholeOr(word) => whole(text)
                .ok_or_else(|| format!("`{text}` is neither a whole number nor `{word}`")),
            ValueKind::Word(words) if words.contains(&text) => Ok(text.to_owned()),
            ValueKind::Word(words) => Err(format!("`{text}` is not one of {}", words.join(", "))),
        }?;
        let number = self.number(&written);
        let (least, most) = self.range;
        if number.zip(self.number(least)).is_some_and(|(number, least)| number < least) {
            return Err(format!("`{text}` is below the minimum of {least}"));
        }
        if number.zip(self.number(most)).is_some_and(|(number, most)| number > most) {
            return Err(format!("`{text}` is above the maximum of {most}"));
        }
        Ok(written)
    }

    /// The value as a number to draw, in [`Self::unit`]; `None` of a word.
    pub fn number(&self, text: &str) -> Option<f64> {
        match self.kind {
            ValueKind::Whole | ValueKind::Packet | ValueKind::WholeOr(_) | ValueKind::Among(_) => {
                text.parse().ok()
            }
            ValueKind::Span => Some(text.parse::<Span>().ok()?.as_nanos() as f64 / 1e6),
            ValueKind::Bytes | ValueKind::BytesOr(_) => {
                Some(text.parse::<Bytes>().ok()?.as_u64() as f64 / f64::from(1 << 20))
            }
            ValueKind::Rate => Some(text.parse::<Rate>().ok()?.as_bits_per_second() as f64 / 1e6),
            ValueKind::Share => {
                Some(text.parse::<Share>().ok()?.as_parts_per_billion() as f64 / 1e7)
            }
            ValueKind::Word(_) => None,
        }
    }

    /// The unit of [`Self::number`].
    pub fn unit(&self) -> &'static str {
        match self.kind {
            ValueKind::Span => "ms",
            ValueKind::Bytes | ValueKind::BytesOr(_) => "MiB",
            ValueKind::Rate => "Mbit/s",
            ValueKind::Share => "%",
            _ => "",
        }
    }

    /// Where values stand in a table: numbers by size, words as declared.
    pub fn rank(&self, text: &str) -> f64 {
        let word = |words: &[&str]| words.iter().position(|w| *w == text).map(|n| n as f64);
        if let ValueKind::Word(words) = self.kind { word(words) } else { self.number(text) }
            .unwrap_or(f64::MAX)
    }
}

/// A whole number as it is written, `4` for `4.0`.
fn whole(text: &str) -> Option<String> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number.fract() == 0.0).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_drawn_in_the_axis_s_unit() {
        assert_eq!(named("file").unwrap().number("8 MiB"), Some(8.0));
        assert_eq!(named("loss").unwrap().number("0.4 %"), Some(0.4));
        assert_eq!(named("peer").unwrap().number("squid"), None);
    }

    #[test]
    fn suggests_the_nearest_axis() {
        let similar = |name| similar_name(name, all().map(|axis| axis.name));
        assert_eq!(similar("relay"), Some("relays"));
        assert_eq!(similar("zzzzzz"), None);
    }
}
