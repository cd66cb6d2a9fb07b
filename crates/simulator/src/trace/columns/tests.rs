use super::*;
use crate::trace::{Direction, Event, PacketRow, Reason, WriteKind};
use ekiden_model::units::Time;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;

fn written(rows: &[PacketRow]) -> Vec<u8> {
    let mut table = Table::new(Vec::new(), PacketRow::COLUMNS, "seed 7").unwrap();
    rows.iter().for_each(|row| table.row(*row).unwrap());
    table.finish().unwrap()
}

/// A row as a reader of the format has it, that knows nothing of ours.
fn fields(row: &PacketRow) -> Vec<(&'static str, Field)> {
    let long = |n: u64| Field::Long(n.min(i64::MAX as u64) as i64);
    let maybe = |n: Option<u64>| n.map_or(Field::Null, long);
    let word = |text: &str| Field::Str(text.to_owned());
    vec![
        ("time_ns", long(row.time.as_nanos())),
        ("event", word(row.event.name())),
        ("flow", Field::UInt(row.flow)),
        ("kind", word(row.kind.name())),
        ("direction", word(row.direction.name())),
        ("sequence", long(row.sequence)),
        ("bytes", Field::UInt(row.bytes)),
        ("retransmission", word(row.retransmission.name())),
        ("server_ns", maybe(row.server_ns)),
        ("router_ns", maybe(row.router_ns)),
        ("client_ns", maybe(row.client_ns)),
        ("end_to_end_ns", maybe(row.end_to_end_ns)),
        ("cwnd_milli", Field::UInt(row.cwnd_milli)),
        ("rto_ns", long(row.rto_ns)),
        ("srtt_ns", maybe(row.srtt_ns)),
        ("rttvar_ns", maybe(row.rttvar_ns)),
        ("queue_packets", Field::UInt(row.queue_packets)),
        ("dropped", Field::Bool(row.dropped)),
    ]
}

fn read(file: Vec<u8>) -> Vec<Vec<(String, Field)>> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let columns = |row: parquet::record::Row| row.into_columns();
    reader.get_row_iter(None).unwrap().map(|row| columns(row.unwrap())).collect()
}

fn assert_read_back(rows: &[PacketRow]) {
    let read = read(written(rows));
    assert_eq!(read.len(), rows.len());
    for (at, (read, row)) in read.iter().zip(rows).enumerate() {
        let read: Vec<_> =
            read.iter().map(|(name, field)| (name.as_str(), field.clone())).collect();
        assert_eq!(read, fields(row), "row {at}");
    }
}

fn numbered(n: u64) -> PacketRow {
    PacketRow {
        time: Time::from_nanos(n * 1_200_000),
        flow: (n % 100) as u32,
        kind: [WriteKind::Interactive, WriteKind::Bulk][(n % 2) as usize],
        sequence: n * 1_460,
        bytes: 1_460,
        server_ns: Some(n % 7_919),
        client_ns: (!n.is_multiple_of(3)).then_some(n),
        dropped: n.is_multiple_of(50),
        ..PacketRow::default()
    }
}

fn any_row() -> impl Strategy<Value = PacketRow> {
    let numbers = (any::<[u32; 4]>(), any::<[u64; 3]>(), any::<[Option<u64>; 6]>());
    let words = (
        prop_oneof![
            Just(Event::Sent),
            Just(Event::Arrived),
            Just(Event::Lost),
            Just(Event::Delivered)
        ],
        prop_oneof![Just(WriteKind::Interactive), Just(WriteKind::Bulk), Just(WriteKind::Other)],
        prop_oneof![Just(Direction::ToServer), Just(Direction::ToClient)],
        prop_oneof![
            Just(Reason::None),
            Just(Reason::Fast),
            Just(Reason::Partial),
            Just(Reason::Sack),
            Just(Reason::Timeout),
            Just(Reason::TailProbe),
        ],
    );
    (numbers, words, any::<bool>()).prop_map(|((numbers, longs, maybe), words, dropped)| {
        let ([flow, bytes, cwnd_milli, queue_packets], [time, sequence, rto_ns]) = (numbers, longs);
        let [server_ns, router_ns, client_ns, end_to_end_ns, srtt_ns, rttvar_ns] = maybe;
        let (event, kind, direction, retransmission) = words;
        let time = Time::from_nanos(time);
        PacketRow {
            time,
            event,
            flow,
            kind,
            direction,
            sequence,
            bytes,
            retransmission,
            server_ns,
            router_ns,
            client_ns,
            end_to_end_ns,
            cwnd_milli,
            rto_ns,
            srtt_ns,
            rttvar_ns,
            queue_packets,
            dropped,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_back_every_written_value(rows in proptest::collection::vec(any_row(), 0..50)) {
        assert_read_back(&rows);
    }
}

#[test]
fn groups_follow_each_other_and_are_never_larger() {
    let rows: Vec<_> = (0..GROUP as u64 + 10).map(numbered).collect();
    let file = bytes::Bytes::from(written(&rows));
    let reader = SerializedFileReader::new(file).unwrap();
    let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
    assert_eq!(groups.collect::<Vec<_>>(), [GROUP as i64, 10]);
    assert_read_back(&rows);
}

#[test]
fn metadata_names_the_producer() {
    let reader = SerializedFileReader::new(bytes::Bytes::from(written(&[]))).unwrap();
    let metadata = reader.metadata().file_metadata();
    assert!(metadata.created_by().unwrap().starts_with("ekiden "));
    let pairs = metadata.key_value_metadata().unwrap();
    let comment = pairs.iter().find(|pair| pair.key == "comment").unwrap();
    assert_eq!(comment.value.as_deref(), Some("seed 7"));
}

/// A disk that is full after so many bytes.
#[derive(Debug)]
pub(crate) struct Disc(pub(crate) usize);

impl Write for Disc {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.0);
        self.0 -= fits;
        if fits == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fits) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn reports_a_full_disk_anywhere() {
    let rows: Vec<_> = (0..2_000).map(numbered).collect();
    let whole = written(&rows).len();
    let finish = |room: usize| {
        let mut table = Table::new(Disc(room), PacketRow::COLUMNS, "seed 7")?;
        rows.iter().try_for_each(|row| table.row(*row))?;
        table.finish()
    };
    assert!(finish(whole).is_ok());
    for room in (0..whole).step_by(97).chain([whole - 1]) {
        assert!(finish(room).is_err(), "{room} bytes of {whole}");
    }
    // long before the end it is the disc's own error
    assert_eq!(finish(10).map(drop).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn finish_repeats_the_first_error() {
    let mut table = Table::new(Disc(1_000), PacketRow::COLUMNS, "seed 7").unwrap();
    let results: Vec<_> = (0..3 * GROUP as u64).map(|n| table.row(numbered(n)).is_ok()).collect();
    let failed: Vec<_> = results.iter().enumerate().filter(|(_, ok)| !**ok).collect();
    assert_eq!(failed.len(), 3, "once for each group");
    assert_eq!(table.rows.capacity(), GROUP);
    assert!(table.finish().is_err());
}

#[test]
fn two_columns_of_one_name_are_refused() {
    const TWICE: &[Column<u32>] = &[
        Column { name: "n", cell: Cell::Number(|n| *n) },
        Column { name: "n", cell: Cell::Number(|n| *n) },
    ];
    let error = Table::new(Vec::new(), TWICE, "").map(drop).unwrap_err();
    assert_eq!(error.to_string(), "two columns are named n");
}
