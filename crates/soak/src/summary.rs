//! What a run showed, for people and for programs.

use crate::books::balance::Balance;
use crate::books::kills::Kill;
use crate::faults::Kind;
use crate::laws::{Break, Door, Leg, QuotaUse, Window};
use crate::ledger::Transfers;
use crate::watch::Growth;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// A look that was due each second and came this much later: the program stood still, and so did its clocks' patience.
const STOOD_STILL: f64 = 10.0;
/// Of so many datagrams without a fault, one may have no answer: the first ones, while their name is asked for.
const LOST: u64 = 50;
/// Of so many questions for names without a fault, one may be asked again, and some in a moment without a processor.
const ASKED_AGAIN: u64 = 200;
const SOME: u64 = 4;
/// Breaks that are printed one by one at most.
const SHOWN: usize = 12;

/// Everything of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Whether all held.
    pub(crate) holds: bool,
    /// What did not, each in a sentence.
    pub(crate) failures: Vec<String>,
    /// Repeats the run's faults and transfers.
    pub(crate) command: String,
    /// Processor, their number, kernel, and other work on it before the run.
    pub(crate) machine: String,
    /// The relay's program, and the version that it says.
    pub(crate) binary: String,
    pub(crate) version: String,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    /// Bytes compared, both directions, and their rate.
    pub(crate) bytes: u64,
    pub(crate) mbit_per_second: f64,
    /// The rate that was demanded.
    pub(crate) at_least: f64,
    pub(crate) faults: BTreeMap<&'static str, usize>,
    pub(crate) wrong: Vec<String>,
    pub(crate) transfers: Vec<Row>,
    /// Breaks by the kind of fault that explains them.
    pub(crate) broken_by_fault: BTreeMap<&'static str, usize>,
    /// The first of those breaks, with the kind.
    pub(crate) explained: Vec<(Kind, Break)>,
    /// How many there were of each kind of them.
    pub(crate) alike: Vec<Alike>,
    /// Breaks that none explains, and the faults as they were.
    pub(crate) unexplained: Vec<Break>,
    pub(crate) windows: Vec<Window>,
    pub(crate) accounts: Vec<Balance>,
    pub(crate) kills: Vec<Kill>,
    /// Datagrams of associations that met no fault: door, leg, sent, without an answer.
    pub(crate) datagrams: Vec<(Door, Leg, u64, u64)>,
    /// The same of questions for names: asked, and asked again.
    pub(crate) questions: Vec<(Door, Leg, u64, u64)>,
    /// Further answers to datagrams that had one.
    pub(crate) duplicates: u64,
    /// What else is to be seen of the traffic: that it was there.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) quota: QuotaUse,
    pub(crate) growth: Vec<Growth>,
    /// How late looks came that were due once a second, at most and in all: a sign of a busy machine.
    pub(crate) late_seconds: [f64; 2],
    /// Questions to the name server.
    pub(crate) names_asked: u64,
    /// Messages to the receiver of alerts, and alerts in them.
    pub(crate) alerts_told: (u64, u64),
}

/// Transfers of a door over a leg.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) door: Door,
    pub(crate) leg: Leg,
    #[serde(flatten)]
    pub(crate) transfers: Transfers,
}

/// Breaks that one kind of fault explains, of transfers over one leg that were open or not, with words that begin so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Alike {
    pub(crate) kind: Kind,
    pub(crate) leg: Leg,
    pub(crate) opened: bool,
    pub(crate) why: String,
    pub(crate) times: u64,
}

/// Counts them.
pub(crate) fn alike(explained: &[(Kind, Break)]) -> Vec<Alike> {
    let mut counts = BTreeMap::<_, u64>::new();
    for (kind, broken) in explained {
        let why = broken.why.split(' ').next().unwrap_or_default();
        *counts.entry((*kind, broken.leg, broken.opened, why)).or_default() += 1;
    }
    let alike = |((kind, leg, opened, why), times): ((Kind, Leg, bool, &str), u64)| Alike {
        kind,
        leg,
        opened,
        why: why.to_owned(),
        times,
    };
    counts.into_iter().map(alike).collect()
}

impl Summary {
    /// Judges: fills `failures` and `holds`. What went wrong before stays.
    pub(crate) fn judge(&mut self) {
        let mut failures = std::mem::take(&mut self.failures);
        let (rate, least) = (self.mbit_per_second, self.at_least);
        if rate < least {
            failures.push(format!("{rate:.0} Mbit/s were moved, and {least:.0} demanded"));
        }
        if !self.wrong.is_empty() {
            failures.push(format!("{} places with wrong bytes", self.wrong.len()));
        }
        if !self.unexplained.is_empty() {
            let count = self.unexplained.len();
            failures.push(format!("{count} transfers broke that no fault explains"));
        }
        for row in self.transfers.iter().filter(|row| row.transfers.whole == 0) {
            let (door, leg) = (row.door.name(), row.leg.name());
            failures.push(format!("no transfer by {door} over the {leg} leg ended whole"));
        }
        for (door, leg, sent, lost) in &self.datagrams {
            if lost * LOST > *sent {
                let (door, leg) = (door.name(), leg.name());
                failures.push(format!(
                    "{lost} of {sent} datagrams of {door} over the {leg} leg had no answer, without a fault"
                ));
            }
        }
        for (_, _, asked, again) in &self.questions {
            if *again > SOME + asked / ASKED_AGAIN {
                failures.push(format!(
                    "{again} of {asked} questions for names were asked again, without a fault"
                ));
            }
        }
        if self.duplicates > 0 {
            failures.push(format!("{} datagrams had a further answer", self.duplicates));
        }
        for balance in self.accounts.iter().filter(|balance| !balance.holds()) {
            failures.push(format!(
                "account {} {}: {} bytes missing ({} may be), {} counted twice",
                balance.account,
                balance.direction,
                balance.missing(),
                balance.may_miss,
                balance.twice()
            ));
        }
        for growth in self.growth.iter().filter(|growth| !growth.holds) {
            let (relay, quantity) = (growth.relay, growth.quantity);
            failures.push(match growth.slope {
                Some(slope) => format!(
                    "{quantity} of the {relay} relay grew by {:.0} ± {:.0} an hour",
                    slope.per_hour, slope.error_per_hour
                ),
                None => format!("too few samples of the {relay} relay's {quantity}: run longer"),
            });
        }
        let [late, _] = self.late_seconds;
        if late > STOOD_STILL {
            failures
                .push(format!("the machine let the run stand still for {late:.0} s: run it again"));
        }
        self.holds = failures.is_empty();
        self.failures = failures;
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // writing to a String does not fail
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let length = Duration::from_secs(self.seconds as u64);
        let faults: usize = self.faults.values().sum();
        writeln!(
            out,
            "soak: seed {}, {length:?}, {} ({}): {:.1} GB compared, {:.0} Mbit/s, {faults} faults",
            self.seed,
            self.version,
            self.binary,
            self.bytes as f64 / 1e9,
            self.mbit_per_second
        )?;
        let heads = ["DOOR", "LEG", "WHOLE", "BROKEN", "LEFT", "MB"];
        let [door, leg, whole, broken, left, mb] = heads;
        writeln!(out, "\n{door:<14}{leg:<8}{whole:>10}{broken:>9}{left:>9}{mb:>12}")?;
        for Row { door, leg, transfers } in &self.transfers {
            let Transfers { whole, broken, left, bytes } = transfers;
            let mb = *bytes as f64 / 1e6;
            let (door, leg) = (door.name(), leg.name());
            writeln!(out, "{door:<14}{leg:<8}{whole:>10}{broken:>9}{left:>9}{mb:>12.1}")?;
        }
        writeln!(out, "\n{:<22}{:>7}{:>8}", "FAULT", "TIMES", "BROKE")?;
        for (kind, times) in &self.faults {
            let broke = self.broken_by_fault.get(kind).copied().unwrap_or(0);
            writeln!(out, "{kind:<22}{times:>7}{broke:>8}")?;
        }
        let heads = ["ACCOUNT", "WAY", "BOOKED", "RECEIVED", "SENT", "MISSING", "MAY MISS"];
        let [account, way, booked, received, sent, missing, may] = heads;
        writeln!(
            out,
            "\n{account:<14}{way:<5}{booked:>14}{received:>14}{sent:>14}{missing:>11}{may:>11}"
        )?;
        for balance in &self.accounts {
            let Balance { account, direction, booked, received, sent, may_miss, .. } = balance;
            let missing = balance.missing();
            writeln!(
                out,
                "{account:<14}{direction:<5}{booked:>14}{received:>14}{sent:>14}{missing:>11}{may_miss:>11}"
            )?;
        }
        for (door, leg, sent, lost) in &self.datagrams {
            let (door, leg) = (door.name(), leg.name());
            writeln!(out, "without a fault: {lost} of {sent} datagrams lost by {door}, {leg}")?;
        }
        for (_, _, asked, again) in &self.questions {
            writeln!(out, "without a fault: {again} of {asked} questions for names asked again")?;
        }
        let QuotaUse { quota, used, refusals } = &self.quota;
        writeln!(out, "quota: {used} of {quota} bytes, refused {} times", refusals.times)?;
        for (what, times) in &self.counts {
            writeln!(out, "{what}: {times}")?;
        }
        if let Some(worst) = self.kills.iter().max_by_key(|kill| kill.lost) {
            let Kill { at, moved, lost, between_looks } = worst;
            writeln!(
                out,
                "{} kills of the near relay: the one at {at:.1?} lost most, {lost} bytes; {moved} had moved in {between_looks:.1?} before it",
                self.kills.len()
            )?;
        }
        writeln!(
            out,
            "\n{:<7}{:<14}{:>13}{:>13}{:>14}{:>14}",
            "RELAY", "QUANTITY", "LEAST", "MOST", "PER HOUR", "ERROR"
        )?;
        for Growth { relay, quantity, least, most, slope, .. } in &self.growth {
            let (per_hour, error) =
                slope.map_or((f64::NAN, f64::NAN), |slope| (slope.per_hour, slope.error_per_hour));
            writeln!(
                out,
                "{relay:<7}{quantity:<14}{least:>13.0}{most:>13.0}{per_hour:>14.0}{error:>14.0}"
            )?;
        }
        let [most, sum] = self.late_seconds;
        writeln!(
            out,
            "looks that were due each second: {most:.1} s late at most, {sum:.1} s in all"
        )?;
        if self.growth.iter().any(|growth| !growth.judged) {
            writeln!(out, "growth is shown and not judged: the run is too short")?;
        }
        for wrong in self.wrong.iter().take(SHOWN) {
            writeln!(out, "wrong: {wrong}")?;
        }
        for broken in self.unexplained.iter().take(SHOWN) {
            let Break { door, domain, from, to, moved, opened, clean, why, .. } = broken;
            let state = if *opened { "open" } else { "opening" };
            let end = if *clean { "ended" } else { "broken" };
            writeln!(
                out,
                "unexplained: {} {domain} {from:.1?} to {to:.1?}, moved until {moved:.1?}, {state}, {end}: {why}",
                door.name()
            )?;
        }
        match self.holds {
            true => writeln!(out, "\nAll held. No byte was wrong.")?,
            false => writeln!(out, "\nDid not hold: {}.", self.failures.join("; "))?,
        }
        writeln!(out, "Again: {}", self.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explained_breaks_are_counted_by_what_they_have_in_common() {
        let broken = |leg, opened, why: &str| {
            let (from, to, moved) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
            let (domain, why, door) = (String::new(), why.to_owned(), Door::Connect);
            let broken = Break { door, leg, domain, from, to, moved, opened, clean: false, why };
            (Kind::KillNear, broken)
        };
        let all = [
            broken(Leg::Direct, true, "ended after 1 of 2 bytes"),
            broken(Leg::Direct, true, "ended after 2 of 3 bytes"),
            broken(Leg::Direct, false, "CONNECT: reset"),
            broken(Leg::Tunnel, true, "ended after 2 of 3 bytes"),
        ];
        let counts = alike(&all);
        let times: Vec<(bool, &str, u64)> =
            counts.iter().map(|row| (row.opened, &row.why[..], row.times)).collect();
        assert_eq!(times, [(false, "CONNECT:", 1), (true, "ended", 2), (true, "ended", 1)]);
    }
}
