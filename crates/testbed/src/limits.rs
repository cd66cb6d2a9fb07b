//! Which processors this process may use, and how many descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Open descriptors this process may have.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Processors this thread may use, lowest first.
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None);
    set.map(|s| (0..CpuSet::MAX_CPU).filter(|c| s.is_set(*c)).collect()).unwrap_or_default()
}

/// Pins this thread, and every process it starts from now on, to one processor. Errors: the processor is not
/// there or not ours.
pub fn pin(cpu: usize) -> io::Result<()> {
    restrict(&[cpu])
}

/// Runs `work` with this thread pinned to `cpu`, then unpins it; a child started inside inherits the pin.
/// Errors: the processor is not there or not ours.
pub fn pinned<T>(cpu: Option<usize>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(cpu) = cpu else { return Ok(work()) };
    let before = cpus();
    pin(cpu)?;
    let result = work();
    restrict(&before)?;
    Ok(result)
}

fn restrict(to: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    to.iter().for_each(|c| set.set(*c));
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the descriptor limit to `wanted`, else to the hard limit, for children too; returns the new limit.
#[must_use]
pub fn raise_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let set = |most: &u64| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(*most), maximum: Some(*most) }).is_ok()
    };
    let _the_first_that_may = [wanted.max(hard), hard].iter().find(|most| set(most));
    descriptors()
}
