//! Laws and examples of the journal.

use super::anew::{Rest, SMALL, Successor};
use super::*;
use proptest::prelude::*;
use std::io::{Seek as _, SeekFrom, Write as _};

const DAY: i64 = 24 * 3600;

fn id(n: i64) -> AccountId {
    AccountId(n)
}

/// Puts a new file in place.
fn go_on_in(journal: &mut Journal, successor: Successor) -> Rest {
    let placed = journal.replacement(successor).place().unwrap();
    journal.go_on_in(placed)
}

/// Writes it anew, however long it is.
fn shorten(journal: &mut Journal, now: i64, is_known: impl Fn(AccountId) -> bool) {
    let successor = journal.contents(now, is_known).write().unwrap();
    go_on_in(journal, successor).sync().unwrap();
}

/// What the next process finds where this one is killed now.
fn after_a_kill(folder: &Path) -> Totals {
    let copy = tempfile::tempdir().unwrap();
    let name = "usage.journal";
    fs::copy(folder.join(name), copy.path().join(name)).unwrap();
    let journal = Journal::open(copy.path()).unwrap();
    assert_eq!(journal.set_aside(), None);
    journal.totals
}

#[test]
fn totals_behind_the_last_settled_one_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    for n in 1..=4 {
        journal.add(id(n), 0, 1, 1);
    }
    let after = |last: Option<i64>| {
        let totals = journal.unsettled_after(last.map(|n| (id(n), 0)));
        totals.iter().map(|total| total.account.0).collect::<Vec<_>>()
    };
    assert_eq!(after(None), [1, 2, 3, 4]);
    assert_eq!(after(Some(2)), [3, 4, 1, 2]);
    assert_eq!(after(Some(9)), [1, 2, 3, 4]);
    assert_eq!(after(Some(0)), [1, 2, 3, 4]);
}

#[test]
fn written_entries_survive_and_unwritten_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    let identity = journal.identity().to_owned();
    journal.add(id(1), 100, 10, 1);
    journal.write().unwrap();
    journal.add(id(1), 100, 5, 0);
    journal.add(id(2), 100, 7, 7);
    journal.write().unwrap();
    // killed within the second that follows
    journal.add(id(1), 100, 1000, 1000);
    drop(journal);
    let journal = Journal::open(folder.path()).unwrap();
    assert_eq!(journal.identity(), identity);
    assert_eq!(journal.used(id(1), 100), (15, 1));
    assert_eq!(journal.used(id(2), 100), (7, 7));
    assert_eq!(journal.unsettled().len(), 2);
}

#[test]
fn half_a_batch_of_a_write_that_failed_hides_nothing_that_follows() {
    // shorter than the next batch, and longer
    for rubbish in [20, 200] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.add(id(1), 0, 10, 1);
        journal.write().unwrap();
        let mut other = File::options().append(true).open(&journal.path).unwrap();
        other.write_all(&vec![7; rubbish]).unwrap();
        (&*journal.file).seek(SeekFrom::End(0)).unwrap();
        for n in 2..5 {
            journal.add(id(n), 0, 20, 2);
            journal.write().unwrap();
            assert_eq!(after_a_kill(folder.path()), journal.totals);
        }
    }
}

#[test]
fn usage_that_comes_while_the_disk_takes_a_batch_or_a_file_is_in_the_next_batch() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 10, 1);
    journal.add(id(2), 0, 20, 2);
    let writing = journal.unwritten().unwrap();
    journal.add(id(1), 0, 5, 0);
    writing.write().unwrap();
    journal.on_written(&writing);
    assert_eq!(journal.unwritten_entries(), [((id(1), 0), (15, 1))]);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    // of one that is given up, all
    journal.add(id(3), 0, 30, 3);
    drop(journal.unwritten());
    let successor = journal.contents(0, |_| true).write().unwrap();
    let replacement = journal.replacement(successor);
    journal.add(id(2), 0, 1, 1);
    let placed = replacement.place().unwrap();
    journal.add(id(4), 0, 40, 4);
    journal.go_on_in(placed).sync().unwrap();
    assert_eq!(journal.unwritten_entries(), [((id(2), 0), (21, 3)), ((id(4), 0), (40, 4))]);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    assert!(journal.unwritten().is_none());
}

#[test]
fn one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let _one = Journal::open(folder.path()).unwrap();
    assert!(matches!(Journal::open(folder.path()), Err(JournalError::InUse(_))));
}

#[test]
fn sets_a_corrupt_journal_aside() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("usage.journal"), "something else").unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    let aside = journal.set_aside().unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "something else");
}

#[test]
fn bytes_that_the_file_lacked_when_it_was_opened_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 10, 5);
    journal.write().unwrap();
    drop(journal);
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 7, 0);
    journal.add(id(3), 0, 7, 0);
    let total = |n, down, up| Total { account: id(n), begun: 0, down, up };
    let had = [total(1, 30, 2), total(2, 4, 4)];
    // asked for twice, it is the same
    journal.on_recalled(&had);
    journal.on_recalled(&had);
    assert_eq!([journal.on_all_recalled(), journal.on_all_recalled()], [28, 0]);
    assert_eq!(journal.unsettled(), [total(1, 37, 5), total(2, 4, 4), total(3, 7, 0)]);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
}

#[test]
fn bytes_of_lives_before_the_database_was_asked_are_nothing_that_the_file_lacked() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Journal::open(folder.path()).unwrap();
    let mut journal = open();
    journal.add(id(1), 0, 300, 0);
    journal.write().unwrap();
    drop(journal);
    for _ in 0..2 {
        let mut journal = open();
        journal.keep_opened().unwrap();
        journal.add(id(1), 0, 50, 0);
        journal.write().unwrap();
    }
    let had = [Total { account: id(1), begun: 0, down: 1_000, up: 0 }];
    let mut journal = open();
    journal.on_recalled(&had);
    remove_opened(&journal.opened_file().unwrap()).unwrap();
    assert_eq!(journal.on_all_recalled(), 700);
    assert_eq!((journal.used(id(1), 0), journal.opened_file()), ((1_100, 0), None));
    journal.write().unwrap();
    drop(journal);
    // it is settled, and nothing lacks any more
    let mut journal = open();
    let had = [Total { down: 1_100, ..had[0] }];
    journal.on_recalled(&had);
    assert_eq!((journal.on_all_recalled(), journal.opened_file()), (0, None));
}

#[test]
fn a_journal_that_is_older_than_what_was_kept_lacks_more() {
    let [newer, older] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let mut journal = Journal::open(newer.path()).unwrap();
    journal.add(id(1), 0, 200, 0);
    journal.write().unwrap();
    let name = "usage.journal";
    fs::copy(newer.path().join(name), older.path().join(name)).unwrap();
    journal.add(id(1), 0, 100, 0);
    journal.write().unwrap();
    drop(journal);
    Journal::open(newer.path()).unwrap().keep_opened().unwrap();
    let name = "usage.opened";
    fs::copy(newer.path().join(name), older.path().join(name)).unwrap();
    let mut journal = Journal::open(older.path()).unwrap();
    journal.on_recalled(&[Total { account: id(1), begun: 0, down: 1_000, up: 0 }]);
    assert_eq!((journal.on_all_recalled(), journal.used(id(1), 0)), (800, (1_000, 0)));
    // what another journal kept says nothing
    drop(journal);
    fs::remove_file(older.path().join("usage.journal")).unwrap();
    assert_eq!(Journal::open(older.path()).unwrap().opened_file(), None);
}

#[test]
fn settled_is_what_did_not_grow_since() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 10, 1);
    journal.add(id(2), 0, 10, 1);
    let sent = journal.unsettled();
    journal.add(id(2), 0, 1, 0);
    let identity = journal.identity().to_owned();
    journal.on_settled(&identity, &sent);
    assert_eq!(journal.unsettled(), [Total { account: id(2), begun: 0, down: 11, up: 1 }]);
    journal.on_settled("of another journal", &journal.unsettled());
    assert_eq!(journal.unsettled().len(), 1);
    // but for a database that was brought back
    journal.on_older();
    assert_eq!(journal.unsettled().len(), 2);
}

#[test]
fn a_long_file_is_written_anew_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    let identity = journal.identity().to_owned();
    for n in 0..10_000_u64 {
        journal.add(id(1), 0, n, 1);
        journal.write().unwrap();
        if let Some(contents) = journal.shorten(0, |_| true) {
            go_on_in(&mut journal, contents.write().unwrap()).sync().unwrap();
        }
    }
    assert!(fs::metadata(folder.path().join("usage.journal")).unwrap().len() < 2 * SMALL);
    let used = journal.used(id(1), 0);
    drop(journal);
    let journal = Journal::open(folder.path()).unwrap();
    assert_eq!((journal.used(id(1), 0), journal.identity()), (used, identity.as_str()));
    assert_eq!(used, (49_995_000, 10_000));
}

#[test]
fn a_kill_at_any_step_of_writing_anew_loses_nothing_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 10, 1);
    journal.add(id(2), 0, 20, 2);
    journal.write().unwrap();
    let contents = journal.contents(0, |_| true);
    // usage goes on while the new file is written
    journal.add(id(1), 0, 5, 0);
    journal.add(id(3), 0, 30, 3);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    let successor = contents.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    journal.add(id(2), 0, 1, 1);
    let rest = go_on_in(&mut journal, successor);
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    rest.sync().unwrap();
    journal.add(id(4), 0, 40, 4);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    let all = [((id(1), 0), (15, 1)), ((id(2), 0), (21, 3))];
    let all = all.into_iter().chain([((id(3), 0), (30, 3)), ((id(4), 0), (40, 4))]);
    assert_eq!(journal.totals, all.collect::<Totals>());
    // one that is given up leaves nothing behind, and the journal goes on
    drop(journal.contents(0, |_| true).write().unwrap());
    journal.add(id(1), 0, 100, 0);
    journal.write().unwrap();
    assert_eq!((after_a_kill(folder.path()), files()), (journal.totals, 2));
}

#[test]
fn a_journal_goes_on_by_another_identity_with_what_the_database_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    let identity = journal.identity().to_owned();
    for n in 1..=3 {
        journal.add(id(n), 0, 10, 1);
    }
    let all = journal.unsettled();
    journal.on_settled(&identity, &all[..2]);
    journal.add(id(2), 0, 5, 0);
    journal.write().unwrap();
    let renewal = journal.renewal().unwrap();
    // killed before it is written
    assert_eq!(after_a_kill(folder.path()), journal.totals);
    journal.add(id(1), 0, 0, 2);
    let renewed = renewal.write().unwrap();
    let rest: Totals = [((id(2), 0), (5, 0)), ((id(3), 0), (10, 1))].into();
    assert_eq!(after_a_kill(folder.path()), rest);
    journal.go_on_as(renewed);
    assert_ne!(journal.identity(), identity);
    assert_eq!(journal.unwritten_entries(), [((id(1), 0), (0, 2))]);
    assert_eq!(journal.unsettled().len(), 3);
    // what was under way for the old one tells nothing of the new one
    journal.on_settled(&identity, &journal.unsettled());
    assert_eq!(journal.unsettled().len(), 3);
    journal.write().unwrap();
    assert_eq!(after_a_kill(folder.path()), journal.totals);
}

#[test]
fn a_file_that_is_written_anew_for_the_old_identity_does_not_come_into_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    journal.add(id(1), 0, 10, 1);
    let successor = journal.contents(0, |_| true).write().unwrap();
    assert!(successor.is_of(&journal));
    let renewed = journal.renewal().unwrap().write().unwrap();
    journal.go_on_as(renewed);
    assert!(!successor.is_of(&journal));
    drop(successor);
    assert_eq!(after_a_kill(folder.path()), journal.totals);
}

#[test]
fn drops_only_settled_past_entries() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    for day in 0..=100 {
        journal.add(id(1), day * DAY, 1, 1);
    }
    let identity = journal.identity().to_owned();
    let settled: Vec<_> =
        journal.unsettled().into_iter().filter(|total| total.begun != 7 * DAY).collect();
    journal.on_settled(&identity, &settled);
    shorten(&mut journal, 100 * DAY, |_| true);
    drop(journal);
    let journal = Journal::open(folder.path()).unwrap();
    let is_kept = |day: i64| journal.used(id(1), day * DAY) == (1, 1);
    let kept: Vec<_> = (0..=100).filter(|day| is_kept(*day)).collect();
    assert_eq!(kept, [0, 7].into_iter().chain(38..=100).collect::<Vec<_>>());
    assert_eq!(journal.identity(), identity);
}

#[test]
fn a_clock_that_was_ahead_drops_no_total_of_a_present_period() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path()).unwrap();
    let identity = journal.identity().to_owned();
    // as if settled; 3 is an account that was removed
    for account in 1..=3 {
        journal.add(id(account), 1000 * DAY, 10, 1);
    }
    journal.on_settled(&identity, &journal.unsettled());
    // a year ahead for a moment around midnight; 1 moves nothing meanwhile
    for ahead in [1400, 1401] {
        journal.add(id(2), ahead * DAY, 5, 0);
        journal.on_settled(&identity, &journal.unsettled());
        shorten(&mut journal, ahead * DAY, |account| account != id(3));
    }
    // and right again
    shorten(&mut journal, 1000 * DAY, |_| true);
    drop(journal);
    let mut journal = Journal::open(folder.path()).unwrap();
    let used = |journal: &Journal| [1, 2, 3].map(|n| journal.used(id(n), 1000 * DAY));
    assert_eq!(used(&journal), [(10, 1), (10, 1), (0, 0)]);
    assert_eq!(journal.used(id(2), 1401 * DAY), (5, 0));
    // what is ahead does not tell what is past
    journal.on_settled(&identity, &journal.unsettled());
    shorten(&mut journal, 1030 * DAY, |_| false);
    assert_eq!(used(&journal), [(10, 1), (10, 1), (0, 0)]);
    // and goes, like all others, in its time
    shorten(&mut journal, 1500 * DAY, |_| false);
    assert_eq!(journal.totals, Totals::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn after_any_cut_the_whole_batches_count_and_no_more(
        seconds in prop::collection::vec(
            prop::collection::vec((1_i64..4, 0_i64..2, 0_u64..1000, 0_u64..1000), 1..4), 1..8),
        cut in 0.0_f64..1.0, flip: Option<u8>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.journal");
        let mut journal = Journal::open(folder.path()).unwrap();
        // how long the file was after each second, and what stood in it
        let mut states = vec![(HEADER as u64, BTreeMap::new())];
        for second in &seconds {
            for (account, begun, down, up) in second {
                journal.add(id(*account), *begun, *down, *up);
            }
            journal.write().unwrap();
            states.push((journal.size, journal.totals.clone()));
        }
        drop(journal);
        let length = fs::metadata(&path).unwrap().len();
        let cut = HEADER as u64 + ((length - HEADER as u64) as f64 * cut) as u64;
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(cut as usize);
        let mut good = cut;
        // and its last byte perhaps broken
        if let Some(flip) = flip.filter(|flip| *flip != 0 && cut > HEADER as u64) {
            *bytes.last_mut().unwrap() ^= flip;
            good = cut - 1;
        }
        fs::write(&path, &bytes).unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        let (_, expected) = states.iter().rev().find(|(size, _)| *size <= good).unwrap();
        prop_assert_eq!(&journal.totals, expected);
        // and what follows is read after it
        journal.add(id(9), 9, 9, 9);
        journal.write().unwrap();
        drop(journal);
        prop_assert_eq!(Journal::open(folder.path()).unwrap().used(id(9), 9), (9, 9));
    }
}
