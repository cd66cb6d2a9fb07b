//! The allocator of this process.

/// Gives freed memory back to the system, as far as whole pages of it are free. With glibc a walk over
/// all heaps, milliseconds for a large one; elsewhere nothing.
pub fn release() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and glibc locks each heap while it trims it.
    unsafe {
        libc::malloc_trim(0);
    }
}
