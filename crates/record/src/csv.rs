//! Rows of comma-separated values (RFC 4180), with a head.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes rows of as many cells as the head has.
#[derive(Debug)]
pub struct Table<W> {
    to: W,
    columns: usize,
}

impl<W: Write> Table<W> {
    /// Writes the head: names with units, as `delay_us`. Errors are the writer's.
    pub fn new(mut to: W, head: &[&str]) -> io::Result<Self> {
        write_row(&mut to, head.iter())?;
        Ok(Self { to, columns: head.len() })
    }

    /// Writes a row. Errors: the writer's, and `InvalidInput` for more or fewer cells than the head
    /// has.
    pub fn row<T: Display>(&mut self, cells: &[T]) -> io::Result<()> {
        if cells.len() != self.columns {
            let text = format!("{} cells under {} columns", cells.len(), self.columns);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        write_row(&mut self.to, cells.iter())
    }

    /// The writer, with everything written that was given.
    pub fn into_inner(self) -> W {
        self.to
    }
}

fn write_row<T: Display>(to: &mut impl Write, cells: impl Iterator<Item = T>) -> io::Result<()> {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            to.write_all(b",")?;
        }
        let text = cell.to_string();
        if text.contains([',', '"', '\n', '\r']) {
            write!(to, "\"{}\"", text.replace('"', "\"\""))?;
        } else {
            to.write_all(text.as_bytes())?;
        }
    }
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_needs_it_and_refuses_ragged_rows() {
        let mut table = Table::new(Vec::new(), &["name", "delay_us"]).unwrap();
        table.row(&["a, \"b\"", "1"]).unwrap();
        table.row(&[3, 4]).unwrap();
        assert_eq!(table.row(&["alone"]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let text = String::from_utf8(table.into_inner()).unwrap();
        assert_eq!(text, "name,delay_us\n\"a, \"\"b\"\"\",1\n3,4\n");
    }
}
