//! Our counts beside ns-2's, kept in `experiments/results/ns2`: `cargo bench -p ekiden-simulator --bench
//! agreement`. Means over the seeds that were kept, and ours over as many.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/ns2/kept.rs"]
mod kept;

use kept::{Kept, NAMES, WITHIN};

fn main() {
    let files = std::fs::read_dir(kept::folder()).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    println!("{:<12} {}", "", NAMES.map(|name| format!("{name:>27}")).join(""));
    let all = files.iter().map(|file| Kept::read(file));
    for kept in all.filter(|kept| !kept.scenario.starts_with("speed")) {
        let (theirs, ours) = (kept.theirs(), kept.ours(kept.runs.len()));
        let cells = theirs.iter().zip(ours).zip(WITHIN).map(|((theirs, ours), within)| {
            let off = if *theirs > 0.0 { ours / theirs - 1.0 } else { ours };
            let mark = if off.abs() <= within { ' ' } else { '!' };
            format!("{theirs:>9.0} {ours:>9.0} {:>5.1} %{mark}", off * 100.0)
        });
        println!("{:<12} {}", kept.scenario, cells.collect::<Vec<_>>().join(""));
    }
}
