//! In which order runs are made: peers beside each other in time, everything else shuffled.

use crate::cell::Cell;
use crate::engine::{Task, WHOLE};
use crate::plan::Plan;
use ekiden_model::rng::Rng;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// Every run of `cells`. Each repetition is a block in which conditions, then peers, then what shares a set-up
/// are shuffled: a machine slow for a minute is slow for all peers, and no peer always comes first.
pub fn tasks(plan: &Plan, cells: &[(Cell, u32)], seed: u64) -> Vec<Task> {
    let together: Vec<&str> = plan.together.iter().map(String::as_str).collect();
    let condition = |cell: &Cell| {
        let mut others = together.clone();
        others.push(plan.paired_in(&cell.part));
        cell.key_without(&others)
    };
    let mut rng = Rng::new(seed);
    let mut tasks = Vec::new();
    let blocks = cells.iter().map(|(_, repetitions)| *repetitions).max().unwrap_or(0);
    for repetition in 0..blocks {
        let block = cells.iter().filter(|(_, n)| repetition < *n).map(|(cell, _)| cell.clone());
        for mut group in shuffled(block.collect(), &mut rng, condition) {
            group.sort_by(Cell::compare);
            for peer in shuffled(group, &mut rng, |cell| cell.key_without(&together)) {
                for cell in shuffled(peer, &mut rng, Cell::key).into_iter().flatten() {
                    let seed = seed_of(plan, &cell, repetition, seed);
                    tasks.push(Task { cell, repetition, seed });
                }
            }
        }
    }
    tasks
}

/// Takes the first task, and those after it of the same part that the machine bears beside it.
pub fn take(tasks: &mut VecDeque<Task>, weight: impl Fn(&Cell) -> u32) -> Vec<Task> {
    let Some(first) = tasks.pop_front() else { return Vec::new() };
    let mut borne = weight(&first.cell);
    let mut taken = vec![first];
    let mut at = 0;
    while borne < WHOLE
        && let Some(next) = tasks.get(at)
    {
        let alike = taken.first().is_some_and(|first| first.cell.part == next.cell.part);
        let weight = weight(&next.cell);
        if !alike || borne + weight > WHOLE {
            at += 1;
            continue;
        }
        borne += weight;
        taken.extend(tasks.remove(at));
    }
    taken
}

/// Groups of equal key, in an order drawn by lot.
fn shuffled(cells: Vec<Cell>, rng: &mut Rng, key: impl Fn(&Cell) -> String) -> Vec<Vec<Cell>> {
    let mut groups: Vec<(String, Vec<Cell>)> = Vec::new();
    for cell in cells {
        let key = key(&cell);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    for last in (1..groups.len()).rev() {
        groups.swap(last, rng.below(last as u64 + 1) as usize); // Fisher and Yates
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The seed of a cell's links in a repetition; depends on `seed` and the condition, not on what else is run.
pub fn seed_of(plan: &Plan, cell: &Cell, repetition: u32, seed: u64) -> u64 {
    let condition = cell.key_without(&[plan.paired_in(&cell.part)]);
    let hash = Sha256::digest(format!("{seed} {repetition} {condition}"));
    hash.iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Choice};
    use std::collections::BTreeSet;

    const PLAN: &str = include_str!("sample.toml");

    #[test]
    fn orders_each_run_once_with_peers_side_by_side() {
        let plan = plan::parse("sample.toml", PLAN).unwrap();
        let cells = plan.cells(&Choice::default());
        let tasks = tasks(&plan, &cells, 1);
        let keys: BTreeSet<_> = tasks.iter().map(|t| (t.cell.key(), t.repetition)).collect();
        assert_eq!(keys.len(), tasks.len());
        let wanted: u32 = cells.iter().map(|(_, n)| n).sum();
        assert_eq!(tasks.len(), wanted as usize);
        let condition = |t: &Task| (t.repetition, t.cell.key_without(&["peer", "file"]));
        let mut changes = tasks.iter().map(condition).collect::<Vec<_>>();
        changes.dedup();
        let different: BTreeSet<_> = changes.iter().collect();
        assert_eq!(changes.len(), different.len(), "a condition came twice in a block");
        assert_eq!(tasks, super::tasks(&plan, &cells, 1));
        assert_ne!(tasks, super::tasks(&plan, &cells, 2));
    }

    #[test]
    fn takes_as_many_runs_as_the_machine_bears() {
        let task = |part: &str, repetition| Task { cell: Cell::new(part, []), repetition, seed: 0 };
        let all = [("a", 0), ("b", 1), ("a", 2), ("a", 3), ("b", 4), ("a", 5)];
        let mut tasks: VecDeque<Task> = all.map(|(part, n)| task(part, n)).into();
        let mut next = |of_a: u32| -> Vec<u32> {
            let weight = |cell: &Cell| if cell.part == "a" { of_a } else { WHOLE };
            take(&mut tasks, weight).iter().map(|task| task.repetition).collect()
        };
        assert_eq!(next(40), [0, 2]);
        assert_eq!(next(1), [1]);
        assert_eq!(next(50), [3, 5]);
        assert_eq!((next(1), next(1)), (vec![4], vec![]));
    }

    #[test]
    fn peers_of_a_condition_meet_the_same_link() {
        let plan = plan::parse("sample.toml", PLAN).unwrap();
        let tasks = tasks(&plan, &plan.cells(&Choice::default()), 1);
        let seeds = |key: &str| -> BTreeSet<u64> {
            let same = |t: &&Task| t.repetition == 0 && t.cell.key_without(&["peer"]) == key;
            tasks.iter().filter(same).map(|t| t.seed).collect()
        };
        let first = tasks[0].cell.key_without(&["peer"]);
        let own = seeds(&first);
        let condition: BTreeSet<_> = tasks
            .iter()
            .filter(|t| t.repetition == 0)
            .map(|t| t.cell.key_without(&["peer"]))
            .collect();
        assert_eq!(own.len(), 1);
        assert!(condition.len() > 1);
    }
}
