//! Rows as columns in a Parquet file, written a group of rows at a time.

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::io::{self, Write};
use std::sync::Arc;

/// Rows to a group, which readers take at once: some megabytes at 18 columns, and all that is held.
const GROUP: usize = 1 << 16;

/// A column of a table of `R`s.
#[derive(Debug, Clone, Copy)]
pub struct Column<R> {
    /// Its name, with the unit.
    pub name: &'static str,
    /// What stands in it.
    pub cell: Cell<R>,
}

/// What a column holds, and where a row has it.
#[derive(Debug, Clone, Copy)]
pub enum Cell<R> {
    /// Written as an unsigned integer of 32 bits.
    Number(fn(&R) -> u32),
    /// Written as a signed integer of 64 bits, which every reader has; what is more counts as 2⁶³ − 1.
    Long(fn(&R) -> u64),
    /// The same, or null.
    Maybe(fn(&R) -> Option<u64>),
    /// One of few words.
    Name(fn(&R) -> &'static str),
    /// True or false.
    Flag(fn(&R) -> bool),
}

/// Writes one file of rows, at most 2³¹. Without [`Table::finish`] it has no footer, and no reader
/// takes it. Held in memory are 65,536 rows and some kilobytes for each group written.
pub struct Table<W: Write + Send, R: 'static> {
    columns: &'static [Column<R>],
    to: SerializedFileWriter<W>,
    rows: Vec<R>,
    cells: Cells,
}

/// One column of one group on its way; kept so that it is allocated once.
#[derive(Default)]
struct Cells {
    numbers: Vec<i32>,
    longs: Vec<i64>,
    names: Vec<ByteArray>,
    flags: Vec<bool>,
    /// 1 where there is a value, 0 where there is none (the format's definition levels).
    present: Vec<i16>,
}

impl<W: Write + Send, R> Table<W, R> {
    /// Begins a table; `comment` in its metadata tells what produced it. Errors: the writer's, and
    /// `InvalidInput` for two columns of one name.
    pub fn new(to: W, columns: &'static [Column<R>], comment: &str) -> io::Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("ekiden ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new("comment".into(), comment.to_owned())]))
            // measured numbers are nearly all different: differences instead of a dictionary take
            // half the time and bytes of plain numbers under snappy
            .set_dictionary_enabled(false)
            // for each page they would be held until the footer
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true);
        let mut fields = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            if columns[..at].iter().any(|other| other.name == column.name) {
                let text = format!("two columns are named {}", column.name);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let path = ColumnPath::from(column.name);
            properties = match column.cell {
                Cell::Number(_) | Cell::Long(_) | Cell::Maybe(_) => {
                    properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
                }
                Cell::Name(_) => properties.set_column_dictionary_enabled(path, true),
                Cell::Flag(_) => properties,
            };
            fields.push(Arc::new(column.kind().map_err(report)?));
        }
        let schema =
            Type::group_type_builder("rows").with_fields(fields).build().map_err(report)?;
        let to = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties.build()));
        let rows = Vec::with_capacity(GROUP);
        Ok(Self { columns, to: to.map_err(report)?, rows, cells: Cells::default() })
    }

    /// Writes a row. Errors are the writer's, when a group is full; nothing after it is written
    /// then.
    pub fn row(&mut self, row: R) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() < GROUP { Ok(()) } else { self.group() }
    }

    /// Writes what is left and the footer. Errors are the writer's, also earlier ones.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.rows.is_empty() {
            self.group()?;
        }
        let mut to = self.to.into_inner().map_err(report)?;
        to.flush()?;
        Ok(to)
    }

    fn group(&mut self) -> io::Result<()> {
        let written = self.to.next_row_group().and_then(|mut group| {
            for column in self.columns {
                self.cells.write(&mut group, &column.cell, &self.rows)?;
            }
            group.close()
        });
        // also after an error: a caller that disregards it must not fill the memory
        self.rows.clear();
        written.map(drop).map_err(report)
    }
}

impl<W: Write + Send, R> std::fmt::Debug for Table<W, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("waiting", &self.rows.len()).finish_non_exhaustive()
    }
}

impl<R> Column<R> {
    fn kind(&self) -> Result<Type, ParquetError> {
        let integer = |bits, signed| Some(LogicalType::integer(bits, signed));
        let (physical, logical) = match self.cell {
            Cell::Number(_) => (Physical::INT32, integer(32, false)),
            Cell::Long(_) | Cell::Maybe(_) => (Physical::INT64, integer(64, true)),
            Cell::Name(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Cell::Flag(_) => (Physical::BOOLEAN, None),
        };
        let repetition = match self.cell {
            Cell::Maybe(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        Type::primitive_type_builder(self.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
    }
}

impl Cells {
    /// Writes the next column of a group.
    fn write<W: Write + Send, R>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        cell: &Cell<R>,
        rows: &[R],
    ) -> Result<(), ParquetError> {
        let missing = || ParquetError::General("the file has fewer columns than the table".into());
        let mut column = group.next_column()?.ok_or_else(missing)?;
        match (column.untyped(), cell) {
            (ColumnWriter::Int32ColumnWriter(to), Cell::Number(of)) => {
                // the bits are those of the unsigned number, as the column's type says
                fill(&mut self.numbers, rows.iter().map(|row| of(row).cast_signed()));
                to.write_batch(&self.numbers, None, None)?;
            }
            (ColumnWriter::Int64ColumnWriter(to), Cell::Long(of)) => {
                fill(&mut self.longs, rows.iter().map(|row| long(of(row))));
                to.write_batch(&self.longs, None, None)?;
            }
            (ColumnWriter::Int64ColumnWriter(to), Cell::Maybe(of)) => {
                fill(&mut self.longs, rows.iter().filter_map(of).map(long));
                fill(&mut self.present, rows.iter().map(|row| of(row).is_some().into()));
                to.write_batch(&self.longs, Some(&self.present), None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(to), Cell::Name(of)) => {
                let name = |row| ByteArray::from(bytes::Bytes::from_static(of(row).as_bytes()));
                fill(&mut self.names, rows.iter().map(name));
                to.write_batch(&self.names, None, None)?;
            }
            (ColumnWriter::BoolColumnWriter(to), Cell::Flag(of)) => {
                fill(&mut self.flags, rows.iter().map(of));
                to.write_batch(&self.flags, None, None)?;
            }
            _ => unreachable!("a column's type is that of its cells (Column::kind)"),
        }
        column.close()?;
        Ok(())
    }
}

fn fill<T>(to: &mut Vec<T>, from: impl Iterator<Item = T>) {
    to.clear();
    to.extend(from);
}

fn long(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The writer's own error, where that is what went wrong.
fn report(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
pub(crate) mod tests;
