//! What each kill of the near relay cost its accounts: the journal that the dead process left, beside what that process
//! had counted itself.
//!
//! Of each account and direction these hold, to the byte:
//! - The journal grew by what the process had counted a second before it died, or by more.
//! - The next process finds what the dead one wrote, and adds no more than it counted itself.
//! - At the end, usage is what the journal held at the last kill, and what the last process counted.

use ekiden_accounts::{AccountId, Journal};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What was counted this long before a kill is in the journal.
pub(crate) const BEFORE: Duration = Duration::from_secs(1);

/// Bytes up and down, by account, in the order in which these were added.
pub(crate) type Sums = Vec<[u64; 2]>;

/// What a process counted of these accounts since it began, out of its status.
pub(crate) fn counted(status: &Value, accounts: &[&str]) -> io::Result<Sums> {
    let known = status["sharing"]["accounts"].as_array();
    let known = known.ok_or_else(|| io::Error::other("the status has no accounts"))?;
    let of = |name: &&str| {
        let found = known.iter().find(|account| account["name"] == **name);
        let bytes = |way: &str| found.and_then(|account| account[way].as_u64()).unwrap_or(0);
        [bytes("bytes_up"), bytes("bytes_down")]
    };
    Ok(accounts.iter().map(of).collect())
}

/// What the journal in a folder holds of the first accounts of its database, so many. It is read as a copy: its own
/// process may be writing it.
pub(crate) fn journaled(state: &Path, accounts: usize) -> io::Result<Sums> {
    let copy = tempfile::tempdir()?;
    match fs::copy(state.join("usage.journal"), copy.path().join("usage.journal")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        copied => drop(copied?),
    }
    let journal = Journal::open(copy.path()).map_err(io::Error::other)?;
    let totals = journal.unsettled();
    let of = |nth: usize| {
        let own = totals.iter().filter(|total| total.account == AccountId(nth as i64 + 1));
        own.fold([0; 2], |[up, down], total| [up + total.up, down + total.down])
    };
    Ok((0..accounts).map(of).collect())
}

/// One kill, bytes of all accounts in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Kill {
    pub(crate) at: Duration,
    /// Counted between two looks, the second one 0.2 s before the kill or less.
    pub(crate) moved: u64,
    /// Counted up to the second look, and not in the journal.
    pub(crate) lost: u64,
    pub(crate) between_looks: Duration,
}

/// The looks around a kill.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When, and what the process had counted [`BEFORE`] that, and 0.2 s before it or less.
    pub(crate) at: Duration,
    pub(crate) between: Duration,
    pub(crate) earlier: Sums,
    pub(crate) last: Sums,
    /// The journal while no process lives.
    pub(crate) left: Sums,
    /// The journal once the next process lives, and what that had counted then or later.
    pub(crate) found: Sums,
    pub(crate) counted: Sums,
}

/// All kills of a run.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    /// The journal at the last one.
    left: Sums,
    pub(crate) all: Vec<Kill>,
    /// What did not hold, each in a sentence.
    pub(crate) faults: Vec<String>,
}

impl Kills {
    pub(crate) fn on_kill(&mut self, accounts: &[&str], looks: Looks) {
        let Looks { at, between, earlier, last, left, found, counted } = looks;
        let (mut moved, mut lost) = (0, 0);
        for (nth, name) in accounts.iter().enumerate() {
            for (way, direction) in ["up", "down"].into_iter().enumerate() {
                let of = |sums: &Sums| sums.get(nth).map_or(0, |sums| sums[way]);
                let (before, written) = (of(&self.left), of(&left));
                let grew = written.saturating_sub(before);
                moved += of(&last).saturating_sub(of(&earlier));
                lost += of(&last).saturating_sub(grew);
                let place =
                    format!("kill at {:.1} s: account {name} {direction}", at.as_secs_f64());
                if grew < of(&earlier) {
                    let missing = of(&earlier) - grew;
                    self.faults.push(format!(
                        "{place}: {missing} bytes missing beyond the last {between:.1?}"
                    ));
                }
                let added = of(&found).checked_sub(written);
                if added.is_none_or(|added| added > of(&counted)) {
                    let (found, counted) = (of(&found), of(&counted));
                    self.faults.push(format!(
                        "{place}: {written} bytes in the journal, then {found}, of which the next process counted {counted}"
                    ));
                }
            }
        }
        self.all.push(Kill { at, moved, lost, between_looks: between });
        self.left = left;
    }

    /// At the end, when nothing moves: what the last process counted, and usage as the operator sees it.
    pub(crate) fn on_end(&mut self, accounts: &[&str], counted: &Sums, usage: &Sums) {
        for (nth, name) in accounts.iter().enumerate() {
            for (way, direction) in ["up", "down"].into_iter().enumerate() {
                let of = |sums: &Sums| sums.get(nth).map_or(0, |sums| sums[way]);
                let (due, used) = (of(&self.left) + of(counted), of(usage));
                if due != used {
                    self.faults.push(format!(
                        "account {name} {direction}: usage is {used} bytes, and {due} were counted"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: [&str; 1] = ["connect"];

    /// One account, of which 1,000 bytes had moved before; the process counted 900 up and 90 down, and 1,000 and 100.
    fn looks(left: [u64; 2]) -> Looks {
        Looks {
            at: Duration::from_secs(9),
            between: BEFORE,
            earlier: vec![[900, 90]],
            last: vec![[1_000, 100]],
            left: vec![left],
            found: vec![left],
            counted: vec![[0, 0]],
        }
    }

    fn after(looks: Looks) -> Kills {
        let mut kills = Kills { left: vec![[1_000, 1_000]], ..Kills::default() };
        kills.on_kill(&ACCOUNTS, looks);
        kills
    }

    #[test]
    fn a_kill_loses_what_came_after_the_earlier_look_alone() {
        let kills = after(looks([1_900, 1_090]));
        assert_eq!(kills.faults, Vec::<String>::new());
        assert_eq!((kills.all[0].moved, kills.all[0].lost), (110, 110));
        assert_eq!(after(looks([2_000, 1_100])).all[0].lost, 0);
        let [fault] = &after(looks([1_899, 1_100])).faults[..] else { panic!() };
        assert!(fault.contains("connect up: 1 bytes missing"), "{fault}");
    }

    #[test]
    fn the_next_process_adds_only_what_it_counted() {
        let more = |found, counted| {
            let looks = looks([2_000, 1_100]);
            after(Looks { found: vec![[2_000, found]], counted: vec![[0, counted]], ..looks })
                .faults
                .len()
        };
        assert_eq!((more(1_150, 50), more(1_151, 50), more(1_099, 50)), (0, 1, 1));
    }

    #[test]
    fn usage_is_what_the_journal_held_and_the_last_process_counted() {
        let ends = |used| {
            let mut kills = after(looks([2_000, 1_100]));
            kills.on_end(&ACCOUNTS, &vec![[5, 7]], &vec![used]);
            kills.faults.len()
        };
        assert_eq!((ends([2_005, 1_107]), ends([2_005, 1_108]), ends([2_004, 1_107])), (0, 1, 1));
    }

    #[test]
    fn a_journal_is_read_by_account_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(journaled(folder.path(), 2).unwrap(), [[0, 0], [0, 0]]);
        let mut journal = Journal::open(folder.path()).unwrap();
        for (begun, down, up) in [(0, 5, 1), (100, 7, 2)] {
            journal.add(AccountId(2), begun, down, up);
        }
        journal.write().unwrap();
        assert_eq!(journaled(folder.path(), 2).unwrap(), [[0, 0], [3, 12]]);
    }

    #[test]
    fn the_status_tells_what_was_counted() {
        let status = serde_json::json!({"sharing": {"accounts": [
            {"name": "(unclaimed)", "bytes_up": 1, "bytes_down": 1},
            {"name": "socks", "bytes_up": 2, "bytes_down": 3},
        ]}});
        assert_eq!(counted(&status, &["connect", "socks"]).unwrap(), [[0, 0], [2, 3]]);
        assert!(counted(&serde_json::json!({}), &["socks"]).is_err());
    }
}
