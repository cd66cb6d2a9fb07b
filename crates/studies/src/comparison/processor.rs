//! How long processors were not idle.

use std::fs;

/// Ticks a second of `/proc`, the same on every Linux but Alpha's.
const TICKS: f64 = 100.0;

/// Seconds that a processor was not idle since the machine started, interrupts included; `None`: all of them together.
/// 0 where `/proc/stat` does not have it. Source: proc_stat(5).
pub fn busy(processor: Option<usize>) -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = processor.map_or("cpu".to_owned(), |n| format!("cpu{n}"));
    ticks(&stat, &name) / TICKS
}

fn ticks(stat: &str, name: &str) -> f64 {
    let mut lines = stat.lines().map(str::split_whitespace);
    let line = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
    let times: Vec<f64> = line.into_iter().flatten().filter_map(|time| time.parse().ok()).collect();
    // user nice system idle iowait irq softirq
    times.iter().take(7).sum::<f64>() - times.iter().skip(3).take(2).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waits_for_disks_are_left_out() {
        let stat = "cpu  10 20 30 400 5 6 7 8 9 0\ncpu0 1 2 3 40 5 6 7 0 0 0\ncpu10 9 0 0 0\n";
        assert_eq!(ticks(stat, "cpu"), 73.0);
        assert_eq!(ticks(stat, "cpu0"), 19.0);
        assert_eq!(ticks(stat, "cpu1"), 0.0);
    }
}
