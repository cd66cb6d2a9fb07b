//! Memory of this process: what the allocator gave out, and what the process keeps of the machine's.

use crate::host::usage::page_size;
use std::fs;

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Of the machine's memory, what is this process's alone: heap and stacks, without its program's file.
    pub resident: u64,
    /// Of the heap, what is in use. The rest is free for what comes next, and may be resident nevertheless.
    pub in_use: u64,
}

/// Both now; `None` without `/proc`, or where the allocator is not glibc's (2.33 or later). It walks the list of free
/// pieces: a millisecond for 100,000.
pub fn process() -> Option<ProcessMemory> {
    let resident = resident(&fs::read_to_string("/proc/self/statm").ok()?)?;
    Some(ProcessMemory { resident, in_use: in_use()? })
}

/// Of `/proc/self/statm`: resident pages without those of files, in bytes.
fn resident(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
    let (all, shared) = (numbers.next()??, numbers.next()??);
    Some(all.saturating_sub(shared) * page_size())
}

#[cfg(target_env = "gnu")]
fn in_use() -> Option<u64> {
    // SAFETY: takes no pointer, and glibc locks each heap while it counts.
    let info = unsafe { libc::mallinfo2() };
    Some((info.uordblks as u64).saturating_add(info.hblkhd as u64))
}

#[cfg(not(target_env = "gnu"))]
const fn in_use() -> Option<u64> {
    None
}

/// Returns freed memory to the system, where whole pages are free; milliseconds. glibc alone.
pub fn release() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and glibc locks each heap while it trims it.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_do_not_count() {
        assert_eq!(resident("900 300 100 1 0 200 0\n"), Some(200 * page_size()));
        assert_eq!(resident("900 300"), None);
        assert_eq!(resident(""), None);
    }

    #[test]
    fn allocated_memory_is_in_use_and_resident() {
        let before = process().unwrap();
        let bytes = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = process().unwrap();
        assert!(after.in_use >= before.in_use + (60 << 20), "{before:?} {after:?}");
        assert!(after.resident >= before.resident + (60 << 20), "{before:?} {after:?}");
        drop(bytes);
        assert!(process().unwrap().in_use < after.in_use - (60 << 20));
    }
}
