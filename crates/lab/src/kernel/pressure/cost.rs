//! Whether the machine was the limit: how busy its processors were, all programs together.

use std::fs;

/// A look at `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// Now; nothing where there is no `/proc/stat`.
    pub(super) fn look() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let all = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some(Self { busy: all - idle, all })
    }

    /// Share of the time since then that they were busy, 0 … 1.
    pub(super) fn busy_since(self, then: Self) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        self.busy.saturating_sub(then.busy) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_not_being_busy() {
        let then = Processors::read("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1\n").unwrap();
        let now = Processors::read("cpu  20 0 30 130 10 5 5 0 20 0\n").unwrap();
        assert!((now.busy_since(then) - 0.4).abs() < 1e-9);
        assert_eq!(Processors::read("intr 5"), None);
        assert!(Processors::look().is_some());
    }
}
