//! Where in a file something stands, and that line made fit to be printed: secrets masked, control
//! characters made visible, long lines cut.

use std::ops::Range;

/// The most characters of a line that are quoted.
const QUOTED: usize = 120;
/// Lines of more bytes are not quoted: looking for secrets in all of them would take long.
const LONGEST_LINE: usize = 4096;

/// A text with its lines found.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The file's name, as it is to be printed.
    pub name: &'a str,
    text: &'a str,
    starts: Vec<usize>,
}

/// A place in a file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line, or the part of it around the place.
    pub quoted: String,
    /// Characters of `quoted` before the place.
    pub indent: usize,
    /// Characters the place takes; at least 1.
    pub width: usize,
}

impl<'a> Source<'a> {
    /// Finds the lines of `text`.
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        let starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name, text, starts }
    }

    /// The line `offset` is on, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The place of a range of bytes; only its first line is marked.
    pub(crate) fn place(&self, span: &Range<usize>) -> Place {
        let at = span.start.min(self.text.len());
        let line = self.line(at).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let rest = self.text.get(start..).unwrap_or("");
        let whole = rest.split('\n').next().unwrap_or("").trim_end_matches('\r');
        let chars =
            |bytes: usize| whole.char_indices().take_while(|(index, _)| *index < bytes).count();
        let from = chars(at - start);
        let to = chars(span.end.min(self.text.len()).max(at) - start).max(from + 1);
        if whole.len() > LONGEST_LINE {
            let quoted = "(a line too long to be shown)".to_owned();
            return Place { line, column: from + 1, quoted, indent: 0, width: 1 };
        }
        let mut line_chars: Vec<char> = whole.chars().collect();
        let (mut from_shown, mut to_shown) = (from, to);
        for secret in secrets(&line_chars).into_iter().rev() {
            let shift = |at: usize| {
                if at <= secret.start {
                    at
                } else {
                    (at + 3).saturating_sub(secret.len()).max(secret.start)
                }
            };
            from_shown = shift(from_shown);
            to_shown = shift(to_shown).max(from_shown + 1);
            line_chars.splice(secret, "***".chars());
        }
        let cut = if from_shown > QUOTED - 20 { from_shown - 20 } else { 0 };
        let quoted: String = line_chars
            .iter()
            .skip(cut)
            .take(QUOTED)
            .map(|c| match c {
                '\t' => ' ',
                c if c.is_control() => '·',
                c => *c,
            })
            .collect();
        let indent = from_shown - cut;
        let end = quoted.chars().count().max(indent + 1);
        Place { line, column: from + 1, quoted, indent, width: (to_shown - cut).min(end) - indent }
    }
}

/// The ranges of a line that hold a secret: the password of a URL, what follows its host, and what is assigned to a key
/// that sounds like one.
fn secrets(line: &[char]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let ends = |c: char| c == '"' || c == '\'';
    let mut at = 0;
    while at < line.len() {
        let rest = &line[at..];
        if rest.starts_with(&[':', '/', '/']) {
            let begin = at + 3;
            let end = line[begin..].iter().position(|c| ends(*c)).map_or(line.len(), |n| begin + n);
            let sign = line[begin..end].iter().rposition(|c| *c == '@');
            if let Some(sign) = sign
                && let Some(colon) = line[begin..begin + sign].iter().position(|c| *c == ':')
            {
                found.push(begin + colon + 1..begin + sign);
            }
            // a path may be a secret, too; that of a tunnel is an address
            let host = begin + sign.unwrap_or(0);
            let path = line[host..end].iter().position(|c| matches!(c, '/' | '?' | '#'));
            if let Some(path) = path.map(|path| host + path + 1)
                && path < end
                && !line[..at].ends_with(&['t', 'u', 'n', 'n', 'e', 'l'])
            {
                found.push(path..end);
            }
            at = end.max(begin);
        } else if let Some(secret) = assigned_secret(line, at) {
            at = secret.end;
            found.push(secret);
        } else {
            at += 1;
        }
    }
    found
}

/// The value after a key such as `password` that begins at `at`.
fn assigned_secret(line: &[char], at: usize) -> Option<Range<usize>> {
    let word_char = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if at > 0 && word_char(line[at - 1]) {
        return None;
    }
    let word: String = line[at..].iter().take_while(|c| word_char(**c)).take(64).collect();
    let word_end = at + word.chars().count();
    let word = word.to_ascii_lowercase();
    let sounds = ["pass", "secret", "token", "credential"].iter().any(|s| word.contains(s));
    // the path of a secret is none
    if !sounds || word.ends_with("_file") {
        return None;
    }
    let mut rest = line[word_end..].iter().enumerate().skip_while(|(_, c)| !matches!(c, '='));
    let (equals, _) = rest.next()?;
    Some(word_end + equals + 1..line.len())
}

/// Text that somebody else chose, with control characters replaced, so that it cannot act on a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(line: &str) -> String {
        Source::new("f", line).place(&(0..1)).quoted
    }

    #[test]
    fn counts_lines_and_columns_in_characters() {
        let source = Source::new("f", "a = 1\nü = \"x\"\n");
        let place = source.place(&(11..14));
        assert_eq!((place.line, place.column, place.width), (2, 5, 3));
        assert_eq!(place.quoted, "ü = \"x\"");
    }

    #[test]
    fn masks_passwords() {
        assert_eq!(quoted("url = \"http://u:geheim@h:1\""), "url = \"http://u:***@h:1\"");
        assert_eq!(quoted("url = 'socks5://u:a@b@h:1' # x"), "url = 'socks5://u:***@h:1' # x");
        assert_eq!(quoted("password = \"geheim\""), "password =***");
        assert_eq!(quoted("password_file = \"/etc/p\""), "password_file = \"/etc/p\"");
        let path = "mail_password_file = \"/etc/p\"";
        assert_eq!(quoted(path), path);
        assert_eq!(quoted("url = \"http://h:1\""), "url = \"http://h:1\"");
        assert_eq!(quoted("x = \"https://h/T0/geheim#x\" # y"), "x = \"https://h/***\" # y");
        assert_eq!(quoted("x = \"https://h?geheim"), "x = \"https://h?***");
        assert_eq!(quoted("x = \"p://u:a@h/d?password=b\""), "x = \"p://u:***@h/***\"");
        assert_eq!(quoted("x = \"tunnel://far/192.0.2.1\""), "x = \"tunnel://far/192.0.2.1\"");
        assert_eq!(quoted("x = \"https://h/\""), "x = \"https://h/\"");
    }

    #[test]
    fn the_mark_moves_with_the_mask() {
        let line = "u = \"http://u:geheimnis@h:1\" bad";
        let at = line.find("bad").unwrap_or(0);
        let place = Source::new("f", line).place(&(at..at + 3));
        assert_eq!(place.quoted.chars().skip(place.indent).collect::<String>(), "bad");
    }

    #[test]
    fn a_very_long_line_is_not_quoted() {
        let line = "x".repeat(100_000);
        let place = Source::new("f", &line).place(&(50_000..50_001));
        assert_eq!((place.column, place.quoted.len() < 100), (50_001, true));
    }

    proptest::proptest! {
        #[test]
        fn any_range_has_a_place(text in ".{0,300}", from in 0_usize..400, len in 0_usize..400) {
            let place = Source::new("f", &text).place(&(from..from + len));
            proptest::prop_assert!(place.width >= 1);
        }
    }
}
