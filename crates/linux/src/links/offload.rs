//! Segmentation of super-packets by the device or by the kernel (ethtool).
//!
//! In software, TCP still goes through the stack once for many packets, and the kernel cuts them
//! right before the device, which sees single packets.

use socket2::{Domain, Socket, Type};
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::AsRawFd;

// include/uapi/linux/ethtool.h
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of a feature's name.
const NAME: usize = 32;
/// Features that any kernel is believed to have at most.
const MOST: u32 = 1024;

/// Makes the kernel segment super-packets of TCP and UDP that `device` sends, in the calling
/// thread's network namespace. Errors: no such device; `PermissionDenied` without CAP_NET_ADMIN.
pub fn segment_in_software(device: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // cmd, reserved, mask (64 bits), and the answer: how many strings there are
    let mut info = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
    call(&socket, device, &mut info)?;
    let count = info[4];
    if count > MOST {
        return Err(io::Error::other(format!("the kernel names {count} features of a device")));
    }
    let mut names = vec![0_u32; 3 + count as usize * NAME / 4];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count]);
    call(&socket, device, &mut names)?;
    let blocks = count.div_ceil(32);
    // each block: which features are meant, and which of those are to be on
    let mut features = vec![0_u32; 2 + 2 * blocks as usize];
    features[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks]);
    for (at, name) in names[3..].chunks(NAME / 4).enumerate() {
        let name: Vec<u8> = name.iter().flat_map(|word| word.to_ne_bytes()).collect();
        if name.starts_with(b"tx-") && name.windows(13).any(|part| part == b"-segmentation") {
            features[2 + 2 * (at / 32)] |= 1 << (at % 32);
        }
    }
    call(&socket, device, &mut features)
}

/// One command to the device; `words` then holds its answer.
fn call(socket: &Socket, device: &str, words: &mut [u32]) -> io::Result<()> {
    let name = CString::new(device).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed() as c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the name ends in NUL, as the rest of the request is zero; `words` begins with the command
    // and the lengths that the kernel reads and writes by, and is as long as they say.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
