//! What is measured.

use crate::contestant::{Contestant, Setting, quoted};
use crate::cpu;
use crate::probe::{Sent, Sunk};
use ekiden_studies::comparison::busy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// One measurement.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    /// As in `--only`.
    pub(crate) name: String,
    setting: Setting,
    pub(crate) what: What,
    /// Where the other has no such mode.
    pub(crate) ekiden_alone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    /// Microseconds a round trip takes longer than the link's delays.
    Rtt,
    /// Received by sent too much, over the link's rate, less one, in percent; seconds to send for.
    Rate(f64),
    /// Percent of packets lost.
    Loss,
    /// Gbit/s of iperf3's.
    Tcp,
}

/// One run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) test: String,
    pub(crate) emulator: &'static str,
    pub(crate) repeat: usize,
    /// The main figure, in the test's unit.
    pub(crate) value: f64,
    /// The others, by name.
    pub(crate) figures: Vec<(&'static str, f64)>,
    pub(crate) emulator_cpu_seconds: f64,
    pub(crate) machine_cpu_seconds: f64,
    pub(crate) seconds: f64,
    /// ekiden's own, and why it is not better.
    pub(crate) verdict: Option<String>,
    pub(crate) reasons: Vec<String>,
    /// Load average before.
    pub(crate) load: f64,
}

/// Packets of each test of loss.
const PACKETS: u64 = 100_000;
/// How much more is sent than the link takes.
const OVERLOAD: f64 = 1.3;
/// Full packets: 1472 bytes of payload.
const FULL: u64 = 1500;

/// Every test, in the order they are run.
pub(crate) fn all() -> Vec<Test> {
    let plain = Setting { mtu: 1500, ..Setting::default() };
    let test = |name: &str, setting, what| Test {
        name: name.to_owned(),
        setting,
        what,
        ekiden_alone: false,
    };
    let mut tests = vec![test("rtt 50 ms", Setting { delay_ms: 25, ..plain }, What::Rtt)];
    for (name, rate, seconds) in [
        ("128 kbit/s", 128_000, 14.0),
        ("1 Mbit/s", 1_000_000, 4.0),
        ("10 Mbit/s", 10_000_000, 3.0),
        ("100 Mbit/s", 100_000_000, 3.0),
        ("500 Mbit/s", 500_000_000, 3.0),
        ("1 Gbit/s", 1_000_000_000, 3.0),
    ] {
        tests.push(test(&format!("rate {name}"), Setting { rate, ..plain }, What::Rate(seconds)));
    }
    for (name, loss) in [("0.1 %", 0.001), ("1 %", 0.01), ("5 %", 0.05)] {
        tests.push(test(&format!("loss {name}"), Setting { loss, ..plain }, What::Loss));
    }
    let long = Setting { delay_ms: 25, ..plain };
    let alone = |test: Test| Test { ekiden_alone: true, ..test };
    tests.extend([
        test("tcp 1500", plain, What::Tcp),
        alone(test("tcp 9000", Setting { mtu: 9000, ..plain }, What::Tcp)),
        alone(test("tcp super", Setting { super_packets: true, ..plain }, What::Tcp)),
        test("tcp 1500, 50 ms", long, What::Tcp),
        alone(test("tcp super, 50 ms", Setting { super_packets: true, ..long }, What::Tcp)),
    ]);
    tests
}

impl Test {
    /// One run of it.
    pub(crate) fn measure(&self, by: &Contestant, repeat: usize, quick: bool) -> io::Result<Row> {
        let folder = tempfile::Builder::new().prefix("ekiden-bench").tempdir()?;
        let short = if quick { 0.1 } else { 1.0 };
        let (near, far) = self.commands(folder.path(), short)?;
        let report = folder.path().join("report");
        let setting = Setting { seed: repeat, ..self.setting };
        let command = by.command(&setting, &near, &far, &report);
        let mut row = Row {
            test: self.name.clone(),
            emulator: by.name(),
            repeat,
            load: ekiden_lab::machine::Machine::read().load,
            ..Row::default()
        };
        let log = folder.path().join("log");
        let begun = Instant::now();
        let machine = busy(None);
        let mut child = by.start(command, File::create(&log)?)?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill()?;
            }
            // what has ended can no longer be read
            let cpu = cpu::of(child.id(), by.process());
            row.emulator_cpu_seconds = row.emulator_cpu_seconds.max(cpu);
            std::thread::sleep(Duration::from_millis(20));
        };
        row.machine_cpu_seconds = busy(None) - machine;
        row.seconds = begun.elapsed().as_secs_f64();
        if !status.success() {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(3).collect();
            return Err(io::Error::other(format!("{status}: {}", lines.join(" / "))));
        }
        self.read(folder.path(), &mut row)?;
        if let Ok(report) = read::<serde_json::Value>(&report) {
            row.verdict = report["verdict"].as_str().map(ToOwned::to_owned);
            let reasons = report["links"][0]["reasons"].as_array().cloned().unwrap_or_default();
            row.reasons =
                reasons.iter().filter_map(|r| r.as_str().map(ToOwned::to_owned)).collect();
        }
        Ok(row)
    }

    /// At the near end and at the far one.
    fn commands(&self, folder: &Path, short: f64) -> io::Result<(String, String)> {
        let probe = format!("{} probe", quoted(&std::env::current_exe()?.display().to_string()));
        let file = |name: &str| quoted(&folder.join(name).display().to_string());
        let (near, far) = (file("near"), file("far"));
        let flood = |bytes: u64, per_second: f64, count: f64| {
            format!("{probe} flood $FAR {bytes} {per_second} {} {near} {far}", count.ceil())
        };
        Ok(match self.what {
            What::Rtt => {
                let count = (3000.0 * short) as usize;
                (format!("{probe} rtt $FAR {count} 700 {near}"), format!("{probe} echo"))
            }
            What::Rate(seconds) => {
                let per_second = self.setting.rate as f64 * OVERLOAD / (FULL * 8) as f64;
                let near = flood(FULL - 28, per_second, (per_second * seconds * short).max(50.0));
                (near, format!("{probe} sink {far}"))
            }
            What::Loss => {
                (flood(200, 40_000.0, PACKETS as f64 * short), format!("{probe} sink {far}"))
            }
            What::Tcp => {
                // slow start to the rate of a long link takes its time
                let (skip, seconds) = if self.setting.delay_ms > 0 { (2, 5.0) } else { (1, 4.0) };
                let seconds = (seconds * short).max(1.0);
                let near = format!("iperf3 -c $FAR -J -O {skip} -t {seconds} > {near}");
                (near, "iperf3 -s".to_owned())
            }
        })
    }

    fn read(&self, folder: &Path, row: &mut Row) -> io::Result<()> {
        let (near, far) = (folder.join("near"), folder.join("far"));
        match self.what {
            What::Rtt => {
                let times: Vec<u64> = read(&near)?;
                let floor = f64::from(self.setting.delay_ms) * 2000.0;
                let errors: Vec<f64> = times.iter().map(|t| *t as f64 / 1000.0 - floor).collect();
                let at = |share| ekiden_lab::statistics::quantile(&errors, share).unwrap_or(0.0);
                row.value = at(0.5);
                row.figures = [
                    ("min", 0.0),
                    ("p10", 0.1),
                    ("p50", 0.5),
                    ("p90", 0.9),
                    ("p99", 0.99),
                    ("max", 1.0),
                ]
                .map(|(name, share)| (name, at(share)))
                .to_vec();
                row.figures.push(("came back", errors.len() as f64));
            }
            What::Rate(_) => {
                let (sent, sunk): (Sent, Sunk) = (read(&near)?, read(&far)?);
                let rate = self.setting.rate as f64;
                let got = sunk.bytes as f64 * 8.0 / sunk.seconds;
                row.value = (got / rate - 1.0) * 100.0;
                let offered = (sent.packets * FULL * 8) as f64 / sent.seconds / rate;
                let overflowed = sunk.overflowed as f64;
                row.figures = vec![("offered/rate", offered), ("overflowed", overflowed)];
            }
            What::Loss => {
                let (sent, sunk): (Sent, Sunk) = (read(&near)?, read(&far)?);
                let lost = (sent.packets - sunk.packets - sunk.overflowed) as f64;
                let (count, loss) = (sent.packets as f64, self.setting.loss);
                row.value = lost / count * 100.0;
                // 99 % of a binomial distribution, which is as good as normal at these counts
                let within = 2.5758 * (count * loss * (1.0 - loss)).sqrt();
                let inside = (lost - count * loss).abs() <= within;
                row.figures = vec![
                    ("sent", count),
                    ("lost", lost),
                    ("within 99 %", f64::from(u8::from(inside))),
                    ("overflowed", sunk.overflowed as f64),
                ];
            }
            What::Tcp => {
                let message: serde_json::Value = read(&near)?;
                let end = &message["end"];
                let got = end["sum_received"]["bits_per_second"].as_f64();
                row.value = got
                    .ok_or_else(|| io::Error::other(format!("iperf3: {}", message["error"])))?
                    / 1e9;
                let again = end["sum_sent"]["retransmits"].as_f64().unwrap_or(0.0);
                row.figures = vec![("retransmits", again)];
                if end["sender_tcp_congestion"] != "cubic" {
                    return Err(io::Error::other(format!(
                        "the sender used {}",
                        end["sender_tcp_congestion"]
                    )));
                }
            }
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}
