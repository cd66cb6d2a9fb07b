use super::*;
use ekiden_model::network::link::{Loss, LossUnit};

pub(crate) fn cell(change: &[(&str, &str)]) -> Cell {
    let base = [
        ("downlink", "100 Mbit/s"),
        ("mtu", "1500"),
        ("acks", "study"),
        ("relays", "0"),
        ("layout", "ends"),
        ("rtt", "0.2 ms"),
        ("loss", "0 %"),
        ("lossy", "even"),
        ("slots", "50"),
        ("framing", "14"),
        ("up-queue", "droptail"),
    ];
    Cell::new("p", base.iter().chain(change).copied())
}

const ONCE: Care = Care { precision: 1.005, tries: 1 };

/// A link where ACKs take the rate of the model.
fn ideal(thin: &Thin, uplink: Rate) -> Passage {
    let payload = Bytes::new(u64::from(thin.mtu - HEADER));
    let limit = thin.acks().goodput(payload, uplink).as_bits_per_second() as f64 / 1e6;
    let goodput = limit.min(100.0 * payload.as_u64() as f64 / f64::from(thin.mtu));
    let segments = (goodput * 1e6 / 8.0 / payload.as_u64() as f64) as u64;
    let acks = segments / u64::from(thin.every);
    Passage { goodput, seconds: 1.0, segments, acks, ack_bytes: acks * 52, ..Passage::default() }
}

#[test]
fn finds_the_uplink_of_the_model() {
    for (mtu, expected) in [("1500", 2.09), ("9000", 0.70)] {
        let cell = cell(&[("mtu", mtu)]);
        let thin = Thin::of(&cell).unwrap();
        let outcome = run(&cell, ONCE, |uplink| Ok(ideal(&thin, uplink))).unwrap();
        assert!((outcome.value / expected - 1.0).abs() < 0.02, "{mtu}: {}", outcome.value);
        let figures = &outcome.figures;
        assert!((figures["segments_per_ack"] - f64::from(thin.every)).abs() < 0.01);
        assert!(figures["goodput_mbit"] >= 0.95 * figures["goodput_mbit_free"]);
        assert!((figures["ack_mbit"] / outcome.value - 1.0).abs() < 0.02, "ACKs fill it");
        assert!((figures["ack_mbit"] / figures["ack_ip_mbit"] - 66.0 / 52.0).abs() < 1e-6);
        let merit = outcome.value / figures["goodput_mbit_free"] * 100.0;
        assert!((figures["per_100_mbit"] - merit).abs() < 1e-9);
    }
}

#[test]
fn does_not_search_a_given_uplink() {
    let cell = cell(&[("uplink", "1 Mbit/s")]);
    let thin = Thin::of(&cell).unwrap();
    let mut asked = Vec::new();
    let outcome = run(&cell, ONCE, |uplink| {
        asked.push(uplink);
        Ok(ideal(&thin, uplink))
    });
    assert_eq!(asked, [Rate::from_bits_per_second(1_000_000)]);
    let value = outcome.unwrap().value;
    assert!((value - 43.88).abs() < 0.01, "{value}");
    assert!((expected(&cell).unwrap() - value).abs() < 0.01);
}

#[test]
fn tolerates_one_disturbed_download_of_two() {
    let cell = cell(&[]);
    let thin = Thin::of(&cell).unwrap();
    let found = |tries| {
        let mut count = 0;
        let outcome = run(&cell, Care { precision: 1.06, tries }, |uplink| {
            count += 1;
            let mut passage = ideal(&thin, uplink);
            // the first one with a free uplink too
            if count % 2 == 1 {
                passage.goodput *= 0.8;
            }
            Ok(passage)
        });
        outcome.map(|outcome| outcome.value)
    };
    assert!((found(2).unwrap() / 2.09 - 1.0).abs() < 0.04);
    assert!(found(1).map_or(true, |value| (value / 2.09 - 1.0).abs() > 0.1));
}

#[test]
fn reports_that_no_uplink_is_enough() {
    let one = Passage { goodput: 96.0, seconds: 1.0, ..Passage::default() };
    let none = Passage::default();
    let message =
        run(&cell(&[]), ONCE, |uplink| Ok(if uplink == FREE { one.clone() } else { none.clone() }));
    assert!(message.unwrap_err().to_string().contains("no uplink up to"));
}

#[test]
fn predicts_only_cells_without_jam_or_handshakes() {
    let near = |cell: &Cell, wanted: f64| {
        expected(cell).is_some_and(|value| (value / wanted - 1.0).abs() < 0.001)
    };
    assert!(near(&cell(&[]), 2.2));
    assert!(near(&cell(&[("mtu", "9000")]), 0.7333));
    assert!(near(&cell(&[("mtu", "9000"), ("acks", "2")]), 0.3667));
    // wide enough: the downlink without its headers
    assert!(near(&cell(&[("uplink", "10 Mbit/s")]), 96.53));
    let jammed = [("uplink", "10 Mbit/s"), ("jam", "50 %")];
    assert_eq!(expected(&cell(&jammed)), None);
    assert!(near(&cell(&[("uplink", "10 Mbit/s"), ("jam", "0 %")]), 96.53));
    assert_eq!(expected(&cell(&[("initial-rto", "1 s")])), None);
}

#[test]
fn loses_on_the_thin_link_both_ways() {
    let lossy = cell(&[("loss", "2 %")]);
    let thin = Thin::of(&lossy).unwrap();
    let of = Loss::Independent(Share::from_percent(2).unwrap(), LossUnit::Packet);
    assert_eq!((thin.up(FREE).loss, thin.down().loss), (of.clone(), of));
    assert_eq!(expected(&lossy), None, "the model of ACKs has no loss");
    assert_eq!(Thin::of(&cell(&[])).unwrap().up(FREE).loss, Loss::None);
    let both = cell(&[("loss", "2 %"), ("handshake-loss", "5 %")]);
    assert!(Thin::of(&both).unwrap_err().to_string().contains("nothing else is"));
    let row = cell(&[("relays", "2"), ("layout", "row")]);
    assert!(Thin::of(&row).unwrap_err().to_string().contains("at its ends"));
}

#[test]
fn counts_a_jam_with_framing() {
    let jammed = cell(&[("jam", "40 %"), ("jam-packet", "1500"), ("jam-shape", "bursts")]);
    let uplink = Rate::from_bits_per_second(10_000_000);
    let (stream, bytes) = jam(&jammed, uplink, 7).unwrap().unwrap();
    assert_eq!(
        (stream.rate, stream.wire, bytes),
        (Rate::from_bits_per_second(4_000_000), 1514, 1500)
    );
    assert!(matches!(stream.shape, Shape::Bursts { .. }));
    assert_eq!(jam(&cell(&[]), uplink, 7), Ok(None));
    let none = cell(&[("jam", "0 %"), ("jam-packet", "1500"), ("jam-shape", "steady")]);
    assert_eq!(jam(&none, uplink, 7), Ok(None));
}
