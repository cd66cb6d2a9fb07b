//! A TUN device: IP packets that the kernel routes to it are read here, and those written here arrive from it.
//!
//! Packets come with the head of virtio (include/uapi/linux/virtio_net.h): a TCP packet may be a super-packet that
//! stands for many, and its checksum may be left to the reader. The kernel removes the device with its descriptor,
//! however the program ends.

use crate::links::netlink::{Failure, Netlink};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

const DEVICE: &str = "/dev/net/tun";
// include/uapi/linux/if_tun.h
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
/// Another program's device of that name is no device of ours.
const IFF_TUN_EXCL: i16 = i16::MIN;
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;

/// Bytes of the head before each packet.
pub const HEAD: usize = 10;
/// The most that one read returns: a head and the longest packet of IP.
pub const LONGEST: usize = HEAD + 65_575;

/// A TUN device, until dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum TunError {
    #[error(
        "there is no {DEVICE}: load the kernel's module (`modprobe tun`), or give the container that device"
    )]
    Missing,
    #[error(
        "{DEVICE} is closed to this user: `chmod 0666 {DEVICE}`, as udev does it, and in a unit of one's own DeviceAllow={DEVICE} rw"
    )]
    Closed,
    #[error("the TUN device \"{0}\" takes CAP_NET_ADMIN, which the packaged service has")]
    Denied(String),
    #[error("there is a device \"{0}\" already: set another `device` in [wireguard]")]
    Taken(String),
    #[error("cannot make the TUN device \"{name}\": {error}")]
    Other { name: String, error: io::Error },
    #[error("{0}")]
    Netlink(#[from] Failure),
}

impl Tun {
    /// Makes the device `name` with this MTU and these addresses, and brings it up, in the calling thread's network
    /// namespace. An IPv6 address is left out where IPv6 is off. Errors: [`TunError`]; nothing is left then.
    pub fn open(name: &str, mtu: u32, addresses: &[(IpAddr, u8)]) -> Result<Self, TunError> {
        let of = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TunError::Denied(name.to_owned()),
            Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => TunError::Taken(name.to_owned()),
            _ => TunError::Other { name: name.to_owned(), error },
        };
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let file = options.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => TunError::Missing,
            // its mode, or a control group of devices
            Some(libc::EPERM | libc::EACCES) => TunError::Closed,
            _ => of(error),
        })?;
        attach(&file, name).map_err(of)?;
        let tun = Self { file };
        let netlink = Netlink::here().map_err(of)?;
        netlink.set_mtu(name, mtu)?;
        netlink.up(name)?;
        for (address, bits) in addresses {
            match netlink.address(name, *address, *bits) {
                Err(failure) if address.is_ipv6() && is_off(&failure) => {}
                other => other?,
            }
        }
        Ok(tun)
    }

    /// Reads one packet with its head. Errors: `WouldBlock` where there is none; `EBADFD` where the device was deleted.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(into)
    }

    /// Writes a packet after its head. Errors: the kernel does not take it, and it is lost.
    pub fn write(&self, head: &[u8; HEAD], packet: &[u8]) -> io::Result<()> {
        (&self.file).write_vectored(&[IoSlice::new(head), IoSlice::new(packet)]).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// IPv6 is off on this machine or this device.
fn is_off(failure: &Failure) -> bool {
    matches!(failure.errno(), libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL)
}

fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    // the last one stays zero
    if bytes.is_empty() || bytes.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL;
    // SAFETY: the kernel reads and writes this one structure, which is whole and ends its name in NUL.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    // SAFETY: the argument is a number, no pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD as _, offloads) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
