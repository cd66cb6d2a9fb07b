use super::*;
use crate::network::workload::flows::Flow;
use crate::testing::*;

fn traces(config: &ThinClient, count: u64) -> Vec<Trace> {
    (0..count).map(|seed| generate(config, &mut Rng::new(seed)).unwrap()).collect()
}

fn sum(traces: &[Trace]) -> Summary {
    let mut all = Summary::default();
    for trace in traces {
        all.merge(&trace.summary);
    }
    all
}

/// Off by at most so many per cent of what was published.
fn within(percent: f64, what: &str, found: f64, published: f64) {
    let off = (found / published - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what}: {found} instead of {published}, {off:.2} % off");
}

/// B1–B5 of the acceptance table.
#[test]
fn hundred_traces_match_table_1() {
    let config = ThinClient::intranet();
    let traces = traces(&config, 100);
    let all = sum(&traces);
    let mean = |total: u64| total as f64 / traces.len() as f64;
    for (kind, found, published) in
        [("interactive", all.interactive, TABLE_1.interactive), ("bulk", all.bulk, TABLE_1.bulk)]
    {
        within(5.0, kind, mean(found.flows), published.flows as f64);
        within(5.0, kind, mean(found.packets), published.packets as f64);
        within(5.0, kind, mean(found.bytes), published.bytes as f64);
        let size = found.bytes as f64 / found.packets as f64;
        within(2.0, kind, size, published.bytes_per_packet().unwrap());
    }
    for trace in &traces {
        let summary = &trace.summary;
        assert!((summary.alpha().unwrap() - config.alpha).abs() <= 0.01);
        assert!((summary.beta().unwrap() - config.beta).abs() <= 0.01);
        assert!(summary.flows() >= 100);
    }
    // a standard deviation of α̂ is 0.009 and of β̂ 0.035, so a try in six is close enough
    let tries: u32 = traces.iter().map(|trace| trace.tries).sum();
    assert!((300..1_200).contains(&tries), "{tries}");
}

#[test]
fn the_internet_has_fewer_bulk_flows() {
    let config = ThinClient::internet();
    assert!((config.bulk_share() / (1.0 - config.bulk_share()) - 0.146).abs() < 0.001);
    let all = sum(&traces(&config, 30));
    let ratio = all.bulk.flows as f64 / all.interactive.flows as f64;
    within(10.0, "bulk flows to one interactive", ratio, 0.146);
}

#[test]
fn offered_load_matches_the_calculation() {
    // 100 connections, 40 bytes of headers a packet: 4.26 Mbit/s
    let all = sum(&traces(&ThinClient::intranet(), 100));
    let bytes = all.interactive.bytes + all.bulk.bytes;
    let packets = all.interactive.packets + all.bulk.packets;
    let rate = (bytes + 40 * packets) as f64 * 8.0 / 300.0 / 1e6;
    within(5.0, "Mbit/s", rate, 4.26);
}

#[test]
fn trace_has_the_given_shape() {
    let trace = generate(&ThinClient::intranet(), &mut Rng::new(7)).unwrap();
    assert!(trace.writes.is_sorted_by_key(|write| write.at));
    assert!(trace.writes.iter().all(|write| (1..=1460).contains(&write.bytes)));
    let flows = trace.writes.chunk_by(|one, next| one.flow == next.flow);
    let (mut longest, mut count) = (0, 0);
    for (number, flow) in flows.enumerate() {
        assert_eq!(flow[0].flow as usize, number);
        assert!(flow[0].at < Time::ZERO + TABLE_1.duration);
        match flow[0].kind {
            FlowKind::Interactive => assert_eq!(flow.len(), 1),
            FlowKind::Bulk => {
                // n full segments, n = 1 or 2, and a rest that is never full
                let sizes: Vec<u32> = flow.iter().map(|write| write.bytes).collect();
                let mut units = sizes.split_inclusive(|bytes| *bytes < 1460);
                assert!(units.all(|unit| (2..=3).contains(&unit.len())), "{sizes:?}");
            }
        }
        longest = longest.max(flow.len());
        count += 1;
    }
    assert_eq!(count, trace.summary.flows());
    assert!((20..=180).contains(&longest), "{longest} packets of about 10² at most");
}

#[test]
fn reports_unreachable_targets() {
    let told = |change: fn(&mut ThinClient)| {
        let mut config = ThinClient::intranet();
        change(&mut config);
        generate(&config, &mut Rng::new(1)).unwrap_err().to_string()
    };
    assert!(told(|config| config.alpha = 1.0).contains("α is more than 0"));
    assert!(told(|config| config.full = 0.7).contains("1/2 to 2/3"));
    assert!(told(|config| config.gap_sigma = f64::NAN).contains("σ of ln seconds"));
    let short = told(|config| {
        config.duration = Span::from_secs(1);
        config.most_tries = 5;
    });
    assert!(
        short.starts_with("none of 5 traces") && short.contains("make the traces longer"),
        "{short}"
    );
}

#[test]
fn same_seed_gives_same_trace() {
    let config = ThinClient::intranet();
    let one = generate(&config, &mut Rng::new(1)).unwrap();
    assert_eq!(one, generate(&config, &mut Rng::new(1)).unwrap());
    assert_ne!(one.writes, generate(&config, &mut Rng::new(2)).unwrap().writes);
    let mut hash = 0_u64;
    for write in &one.writes {
        for value in [write.at.as_nanos(), write.bytes.into(), write.flow.into()] {
            hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    assert_eq!((one.tries, one.writes.len(), hash), (1, 2_096, 3_699_905_842_463_976_152));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// What is generated is found again, flow by flow, whatever the parameters.
    #[test]
    fn classifying_gives_back_the_flows(
        seed: u64,
        alpha in 0.05..0.95,
        beta in 0.05..0.95,
        sigma in 0.0..4.0,
        gap in 0_u64..6_000_000,
        units in 1_u32..200,
    ) {
        let config = ThinClient {
            alpha, beta,
            tolerance: 1.0,
            least_flows: 0,
            gap_sigma: sigma,
            packet_gap: Span::from_nanos(gap),
            most_units: units,
            duration: Span::from_secs(60),
            ..ThinClient::intranet()
        };
        let writes = draw(&config, &PowerLaw::new(1.9, units), &mut Rng::new(seed));
        let mut flows = Flows::new(THRESHOLD);
        let mut found: Vec<Flow> =
            writes.iter().filter_map(|w| flows.on_packet(w.at, w.bytes.into())).collect();
        found.extend(flows.finish());
        let meant: Vec<&[Write]> = writes.chunk_by(|one, next| one.flow == next.flow).collect();
        prop_assert_eq!(found.len(), meant.len());
        for (found, meant) in found.iter().zip(meant) {
            prop_assert_eq!(found.begin, meant[0].at);
            prop_assert_eq!(found.packets, meant.len() as u64);
            prop_assert_eq!(found.bytes, meant.iter().map(|w| u64::from(w.bytes)).sum::<u64>());
            prop_assert_eq!(found.kind(), meant[0].kind);
        }
    }
}
