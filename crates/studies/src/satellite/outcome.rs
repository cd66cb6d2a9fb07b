//! Figures of a bulk run, as both engines report them.

use crate::long_link::bottleneck::Summary;
use ekiden_lab::engine::Outcome;
use ekiden_lab::statistics::quantile;
use ekiden_record::histogram::Histogram;
use ekiden_testbed::load::far_client::Echoed;
use std::time::Duration;

/// Before the end of what is counted, echoes are not: theirs may come behind it.
pub(crate) const LAST: Duration = Duration::from_secs(1);

/// Jain's index (1984) of what each stream got: 1 where all have the same, 1/n where one has all.
pub(crate) fn evenness(bytes: &[f64]) -> f64 {
    let all: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|one| one * one).sum();
    all * all / squares / bytes.len() as f64
}

/// How long echoes took that were sent between two times.
pub(crate) fn tell_echoes(
    echoes: &[Echoed],
    (from, to): (Duration, Duration),
    outcome: &mut Outcome,
) {
    let within = || echoes.iter().filter(|echo| (from..to).contains(&echo.sent));
    let delays: Vec<f64> = within().map(|echo| echo.took.as_secs_f64() * 1e3).collect();
    let quantiles =
        [("echo_p50_ms", 0.5), ("echo_p90_ms", 0.9), ("echo_p99_ms", 0.99), ("echo_most_ms", 1.0)];
    let quantile = |(name, share)| Some((name, quantile(&delays, share)?));
    outcome.add_figures(quantiles.into_iter().filter_map(quantile));
    let late = within().filter(|echo| !echo.came).count();
    outcome.add_figures([("echoes_that_never_came", late as f64)]);
    let mut histogram = Histogram::new();
    within().for_each(|echo| histogram.add(echo.took.as_nanos() as u64));
    let slots = histogram.slots().map(|(floor, count)| [floor, count]).collect();
    outcome.histograms.insert("echo".to_owned(), slots);
}

/// What became of packets one way and back in such a time.
pub(crate) fn tell_sides(
    (forward, back): (Summary, Summary),
    time: Duration,
    outcome: &mut Outcome,
) {
    let share = |part: u64| part as f64 * 100.0 / forward.packets.max(1) as f64;
    let [half, most] = forward.waited;
    outcome.add_figures([
        ("dropped_percent", share(forward.dropped)),
        ("lost_percent", share(forward.lost)),
        ("queue_p50_ms", half),
        ("queue_p99_ms", most),
        ("back_percent", back.bytes as f64 * 100.0 / forward.bytes.max(1) as f64),
        ("wire_mbit", forward.bytes as f64 * 8e-6 / time.as_secs_f64()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_missing_echo_with_its_waiting_time() {
        let ms = Duration::from_millis;
        let echo = |sent, took, came| Echoed { sent: ms(sent), took: ms(took), came };
        let mut echoes: Vec<Echoed> = (0..99).map(|n| echo(1_000 + n, 600, true)).collect();
        echoes.push(echo(1_500, 9_000, false));
        echoes.push(echo(10, 5_000, true)); // before it is counted
        let mut outcome = Outcome::default();
        tell_echoes(&echoes, (ms(1_000), ms(2_000)), &mut outcome);
        let configured = |name: &str| outcome.figures[name];
        assert_eq!((configured("echo_p50_ms"), configured("echo_most_ms")), (600.0, 9_000.0));
        assert_eq!(configured("echoes_that_never_came"), 1.0);
        let counted: u64 = outcome.histograms["echo"].iter().map(|[_, count]| count).sum();
        assert_eq!(counted, 100);
    }
}
