//! The allocator of this process.

/// Returns freed memory to the system, where whole pages are free; milliseconds. glibc alone.
pub fn release() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and glibc locks each heap while it trims it.
    unsafe {
        libc::malloc_trim(0);
    }
}
