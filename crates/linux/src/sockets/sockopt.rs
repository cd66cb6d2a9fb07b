//! `getsockopt` and `setsockopt`, and constants that `libc` lacks. Errors are bare `errno`s, kept
//! per connection and put into words on demand.

use libc::{c_int, c_void, socklen_t};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) type Errno = i32;

// include/uapi/linux/tcp.h
/// `TCP_RTO_MAX_MS`, Linux 6.15.
pub(crate) const TCP_RTO_MAX_MS: c_int = 44;
/// `TCP_RTO_MIN_US`, Linux 6.11.
pub(crate) const TCP_RTO_MIN_US: c_int = 45;

pub(crate) fn os_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

pub(crate) fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The error of a call that answers with 0, or with -1 and `errno`. Async-signal-safe.
pub(crate) fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn set_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> Result<(), Errno> {
    let length = socklen_t::try_from(value.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the pointer and length describe `value`, which outlives the call; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), length)
    };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// Reads an option into `into`; the number of bytes the kernel filled in.
pub(crate) fn get_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    into: &mut [u8],
) -> Result<usize, Errno> {
    let mut length = socklen_t::try_from(into.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the pointer and length describe `into`, which is writable and outlives the call; the
    // kernel writes at most `length` bytes and then stores how many it wrote.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            into.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(length as usize) } else { Err(errno()) }
}

pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> Result<(), Errno> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

pub(crate) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let mut bytes = [0; size_of::<c_int>()];
    get_bytes(fd, level, name, &mut bytes)?;
    Ok(c_int::from_ne_bytes(bytes))
}

/// Sets an `int` option and reads it back.
pub(crate) fn set_and_get(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> Result<c_int, Errno> {
    set_int(fd, level, name, value)?;
    get_int(fd, level, name)
}

/// Reads a text option, up to the first NUL.
pub(crate) fn get_text(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<String, Errno> {
    let mut bytes = [0; 32];
    let length = get_bytes(fd, level, name, &mut bytes)?;
    let filled = bytes.get(..length).unwrap_or(&bytes);
    let text = filled.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// `SO_MAX_PACING_RATE` in bytes per second: an `unsigned long` since Linux 4.20, 32 bits before.
pub(crate) fn set_pace(fd: BorrowedFd<'_>, bytes_per_second: u64) -> Result<(), Errno> {
    let rate = usize::try_from(bytes_per_second).unwrap_or(usize::MAX);
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate.to_ne_bytes())
}

/// `SO_MAX_PACING_RATE` in bytes per second; `u64::MAX` when there is no limit.
pub(crate) fn get_pace(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes = [0; size_of::<usize>()];
    let length = get_bytes(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut bytes)?;
    let (rate, unlimited) = if length == size_of::<usize>() {
        let rate = usize::from_ne_bytes(bytes);
        (rate as u64, rate == usize::MAX)
    } else {
        let rate = bytes.first_chunk().map_or(0, |chunk| u32::from_ne_bytes(*chunk));
        (u64::from(rate), rate == u32::MAX)
    };
    Ok(if unlimited { u64::MAX } else { rate })
}

/// An `ioctl` that answers with an `int`: bytes in a queue.
pub(crate) fn queue(fd: BorrowedFd<'_>, request: libc::c_ulong) -> Result<u32, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the requests used here (SIOCOUTQ, FIONREAD) write one `int` through the
    // pointer, which is valid for the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &raw mut bytes) };
    if result == 0 { Ok(u32::try_from(bytes).unwrap_or(0)) } else { Err(errno()) }
}
