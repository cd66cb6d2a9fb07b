//! Datagrams that are taken in together: several with one system call, and those of one sender and size that the kernel
//! has merged as one (`UDP_GRO`, Linux 5.0).

use super::datagram::{CONTROL, Control};
use crate::sockets::sockopt::{self, os_error};
use crate::sockets::transparent::IPV6_ORIGDSTADDR;
use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use socket2::{SockAddr, SockAddrStorage};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// Messages taken with one call.
const MESSAGES: usize = 16;
/// The largest one: so much does the kernel merge at most.
const LARGEST: usize = 65_536;

/// Lets the kernel merge datagrams of one sender and size. Errors: it cannot, and they come one by one.
pub fn merge(socket: &UdpSocket) -> io::Result<()> {
    sockopt::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).map_err(os_error)
}

/// Room for datagrams, and those that were received last.
#[derive(Debug)]
pub struct ReceiveBatch {
    bytes: Vec<u8>,
    received: Vec<Message>,
    /// The most datagrams that a message had when last received.
    merged: usize,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    /// The number of its buffer.
    room: usize,
    length: usize,
    /// Bytes of each datagram in it; the last one may be shorter.
    size: usize,
    from: SocketAddr,
    here: Option<IpAddr>,
    asked: Option<SocketAddr>,
}

/// One datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What it carries.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub from: SocketAddr,
    /// The address here that it was sent to, where [`report_destinations`](super::datagram::report_destinations) was
    /// called.
    pub here: Option<IpAddr>,
    /// The destination in its head, at a socket of [`transparent::datagrams`](super::transparent::datagrams).
    pub asked: Option<SocketAddr>,
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        // pages that nothing is written to take no memory
        Self {
            bytes: vec![0; MESSAGES * LARGEST],
            received: Vec::with_capacity(MESSAGES),
            merged: 1,
        }
    }
}

impl ReceiveBatch {
    /// Takes in what has come, some `most` datagrams, in place of what was received before. More than that come where the
    /// kernel merges more of them than it did the last time. Whether there may be more. Errors: as of `recvmmsg`;
    /// `WouldBlock` where nothing has come, `ConnectionRefused` for an ICMP error of an earlier datagram.
    pub fn receive(&mut self, socket: &UdpSocket, most: usize) -> io::Result<bool> {
        self.received.clear();
        let messages = (most / self.merged).clamp(1, MESSAGES);
        // SAFETY: all zeros is a valid value of this structure of numbers and pointers.
        let mut heads: [libc::mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
        let mut names: [SockAddrStorage; MESSAGES] =
            std::array::from_fn(|_| SockAddrStorage::zeroed());
        let mut controls = [Control([0; CONTROL]); MESSAGES];
        let mut parts: [libc::iovec; MESSAGES] = self.parts();
        for (((head, name), control), part) in
            heads.iter_mut().zip(&mut names).zip(&mut controls).zip(&mut parts)
        {
            let message = &mut head.msg_hdr;
            message.msg_name = (&raw mut *name).cast();
            message.msg_namelen = name.size_of();
            message.msg_iov = &raw mut *part;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = CONTROL as _;
        }
        // SAFETY: each head points to a name, a buffer of `LARGEST` bytes and a control buffer that outlive the call, and
        // nothing else refers to them meanwhile. No time-out is passed.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                heads.as_mut_ptr(),
                messages as _,
                0,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        self.merged = 1;
        for (room, (head, name)) in heads.iter().zip(names).take(count).enumerate() {
            let length = head.msg_len as usize;
            // SAFETY: the kernel wrote the control messages of this head, whose buffer is still there.
            let Controls { here, asked, size: merged } = unsafe { controls_of(&head.msg_hdr) };
            // SAFETY: the kernel filled in this name as far as the length says.
            let from = unsafe { SockAddr::new(name, head.msg_hdr.msg_namelen) };
            let Some(from) = from.as_socket() else { continue };
            let size = merged.filter(|size| *size > 0).unwrap_or(length);
            self.merged = self.merged.max(length.div_ceil(size.max(1)));
            self.received.push(Message { room, length, size, from, here, asked });
        }
        Ok(count == messages)
    }

    fn parts(&mut self) -> [libc::iovec; MESSAGES] {
        let mut rooms = self.bytes.chunks_exact_mut(LARGEST);
        std::array::from_fn(|_| {
            let room = rooms.next().unwrap_or_default();
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
        })
    }

    /// What was received last, each datagram by itself.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.received.iter().flat_map(|message| {
            let Message { room, length, size, from, here, asked } = *message;
            let at = room * LARGEST;
            let all = self.bytes.get(at..at + length).unwrap_or_default();
            // an empty one is one, too
            let empty = (length == 0).then_some(all);
            let each = all.chunks(size.max(1)).chain(empty);
            each.map(move |bytes| Datagram { bytes, from, here, asked })
        })
    }
}

/// What the kernel says beside a message.
#[derive(Debug, Default)]
struct Controls {
    here: Option<IpAddr>,
    asked: Option<SocketAddr>,
    /// The size of each of the datagrams that were merged.
    size: Option<usize>,
}

/// What the kernel wrote beside a message.
///
/// # Safety
/// The control messages are those that the kernel wrote for this head.
unsafe fn controls_of(message: &libc::msghdr) -> Controls {
    let mut controls = Controls::default();
    // SAFETY: the control messages lie within the buffer, as the kernel wrote its length, and are copied out unaligned
    // only where they are as long as what is read.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = head.as_ref() {
            let data = libc::CMSG_DATA(head);
            // of another type with musl
            let length: usize = found.cmsg_len as _;
            let holds = |size: usize| length >= libc::CMSG_LEN(size as u32) as usize;
            match (found.cmsg_level, found.cmsg_type) {
                (IPPROTO_IP, libc::IP_PKTINFO) if holds(size_of::<libc::in_pktinfo>()) => {
                    // what answers come from: as the destination, but never a broadcast address
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let bits = u32::from_be(info.ipi_spec_dst.s_addr);
                    controls.here = Some(IpAddr::from(Ipv4Addr::from_bits(bits)));
                }
                (IPPROTO_IPV6, libc::IPV6_PKTINFO) if holds(size_of::<libc::in6_pktinfo>()) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    controls.here = Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (IPPROTO_IP, libc::IP_ORIGDSTADDR) if holds(size_of::<libc::sockaddr_in>()) => {
                    let name = data.cast::<libc::sockaddr_in>().read_unaligned();
                    let address = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
                    controls.asked = Some((address, u16::from_be(name.sin_port)).into());
                }
                (IPPROTO_IPV6, IPV6_ORIGDSTADDR) if holds(size_of::<libc::sockaddr_in6>()) => {
                    let name = data.cast::<libc::sockaddr_in6>().read_unaligned();
                    let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
                    controls.asked = Some((address, u16::from_be(name.sin6_port)).into());
                }
                (libc::SOL_UDP, libc::UDP_GRO) if holds(size_of::<c_int>()) => {
                    controls.size = usize::try_from(data.cast::<c_int>().read_unaligned()).ok();
                }
                _ => {}
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    controls
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{open, report_destinations, send, send_segments};
    use super::*;

    /// Waits for something, and returns all that has come.
    fn take(batch: &mut ReceiveBatch, socket: &UdpSocket) {
        while let Err(error) = batch.receive(socket, 64) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn takes_about_as_many_as_are_asked_for() {
        let [from, to] = [0, 1].map(|_| open("127.0.0.1:0".parse().unwrap()).unwrap());
        merge(&to).unwrap();
        let address = to.local_addr().unwrap();
        for _ in 0..12 {
            send_segments(&from, (None, address), &[7; 40_000], 1_000).unwrap();
        }
        let mut batch = ReceiveBatch::default();
        // how many are merged is known from the second time on
        take(&mut batch, &to);
        for _ in 0..12 {
            send_segments(&from, (None, address), &[7; 40_000], 1_000).unwrap();
        }
        take(&mut batch, &to);
        assert!((1..=64).contains(&batch.datagrams().count()));
    }

    #[test]
    fn merged_and_single_datagrams_come_apart_as_they_were_sent() {
        for merges in [false, true] {
            let [from, to] = [0, 1].map(|_| open("127.0.0.1:0".parse().unwrap()).unwrap());
            if merges {
                merge(&to).unwrap();
            }
            let address = to.local_addr().unwrap();
            let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n / 7) as u8).collect();
            // 40 of 1,000 bytes merged, an empty one, one by itself, and a run whose last is shorter
            send_segments(&from, (None, address), &bytes, 1_000).unwrap();
            send(&from, (None, address), &[]).unwrap();
            send(&from, (None, address), &bytes[..7]).unwrap();
            send_segments(&from, (None, address), &bytes[..2_500], 1_000).unwrap();
            let mut expected: Vec<&[u8]> = bytes.chunks(1_000).collect();
            expected.extend([&[][..], &bytes[..7]]);
            expected.extend(bytes[..2_500].chunks(1_000));
            let (mut batch, mut came) = (ReceiveBatch::default(), Vec::new());
            while came.len() < expected.len() {
                take(&mut batch, &to);
                assert!(batch.datagrams().all(|one| one.from == from.local_addr().unwrap()));
                came.extend(batch.datagrams().map(|one| one.bytes.to_vec()));
            }
            assert_eq!(came, expected, "{merges}");
            assert_eq!(batch.receive(&to, 64).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(batch.datagrams().count(), 0);
        }
    }

    #[test]
    fn answers_come_from_the_address_that_was_asked() {
        for (all, asked) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
            let Ok(server) = open(all.parse().unwrap()) else {
                assert!(all.starts_with('['), "IPv4 is always there");
                continue;
            };
            report_destinations(&server).unwrap();
            let asked: IpAddr = asked.parse().unwrap();
            let to = SocketAddr::new(asked, server.local_addr().unwrap().port());
            let client = UdpSocket::bind(match asked.is_ipv6() {
                true => "[::1]:0",
                false => "127.0.0.1:0",
            });
            let client = client.unwrap();
            client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            client.connect(to).unwrap();
            client.send(b"hello").unwrap();
            let mut batch = ReceiveBatch::default();
            take(&mut batch, &server);
            let hello = Datagram {
                bytes: b"hello",
                from: client.local_addr().unwrap(),
                here: Some(asked),
                asked: None,
            };
            assert_eq!(batch.datagrams().collect::<Vec<_>>(), [hello]);
            let (from, here, mut buffer) = (hello.from, hello.here, [0; 9]);
            send(&server, (here, from), b"one").unwrap();
            send_segments(&server, (here, from), b"twothree", 3).unwrap();
            // the client takes datagrams of that address alone
            for expected in ["one", "two", "thr", "ee"] {
                let length = client.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], expected.as_bytes());
            }
        }
        // without being asked for, it is not told
        let silent = open("127.0.0.1:0".parse().unwrap()).unwrap();
        silent.send_to(b"x", silent.local_addr().unwrap()).unwrap();
        let mut batch = ReceiveBatch::default();
        take(&mut batch, &silent);
        assert_eq!(batch.datagrams().map(|one| one.here).collect::<Vec<_>>(), [None]);
    }
}
