//! Which queueing disciplines the kernel has: each is added to the loopback device of a new network
//! namespace, which ends with the child process that made it.

use super::support::{Support, words};
use crate::sockets::sockopt::errno;
use libc::{c_int, c_void};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

pub(super) const KINDS: &[&str] = &["fq", "fq_codel", "cake", "netem", "htb", "tbf"];

/// The child's report when the new namespace or socket was refused.
const NOT_ASKED: c_int = 1 << 16;

pub(super) fn probe() -> BTreeMap<String, Support> {
    let messages: Vec<Vec<u8>> =
        KINDS.iter().zip(1_u32..).map(|(kind, n)| add_message(kind, n)).collect();
    let answers = in_a_child(&messages);
    let support = |i: usize| match &answers {
        Err(error) => Support::Unknown { because: error.to_string() },
        Ok(answers) => match answers.get(i).copied() {
            // the last three want parameters, and only a known kind can miss them
            Some(0 | libc::EINVAL) => Support::Yes,
            Some(libc::ENOENT) => Support::No { because: "unknown to this kernel".into() },
            Some(errno) if errno & NOT_ASKED != 0 => Support::Unknown {
                because: format!(
                    "no network namespace to try it in: {}",
                    words(errno & !NOT_ASKED)
                ),
            },
            Some(errno) => Support::Unknown { because: words(errno) },
            None => Support::Unknown { because: "the trial ended early".into() },
        },
    };
    KINDS.iter().enumerate().map(|(i, kind)| ((*kind).to_owned(), support(i))).collect()
}

/// `RTM_NEWQDISC` of a kind at the root of device 1, which in a new namespace is `lo`.
fn add_message(kind: &str, n: u32) -> Vec<u8> {
    const TCA_KIND: u16 = 1;
    const TC_H_ROOT: u32 = u32::MAX;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut body = Vec::new();
    // struct tcmsg: family and padding, device, handle, parent, info
    body.extend([0; 4]);
    for word in [1, n << 16, TC_H_ROOT, 0] {
        body.extend(word.to_ne_bytes());
    }
    // struct nlattr and its NUL-terminated text, padded to 4 bytes
    let length = 4 + kind.len() + 1;
    body.extend((length as u16).to_ne_bytes());
    body.extend(TCA_KIND.to_ne_bytes());
    body.extend(kind.as_bytes());
    body.resize(body.len() + 1 + (4 - length % 4) % 4, 0);
    // struct nlmsghdr: length, type, flags, sequence number, port
    let mut message = Vec::new();
    message.extend((body.len() as u32 + 16).to_ne_bytes());
    message.extend(libc::RTM_NEWQDISC.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend(n.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

/// Sends each message in a namespace of a child process's own; the kernel's `errno` for each.
fn in_a_child(messages: &[Vec<u8>]) -> io::Result<Vec<c_int>> {
    let (mut read, write) = io::pipe()?;
    // SAFETY: the child calls `child` alone, which makes system calls on memory prepared before: no
    // allocation, no lock, no destructor, as a fork of a process with threads demands; then it ends.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => child(messages, write.as_raw_fd()),
        _ => drop(write),
    }
    let mut bytes = Vec::new();
    let result = read.read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: waits for the child made above and nobody else's; the status is valid for the call.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 && errno() == libc::EINTR {}
    result?;
    Ok(bytes.as_chunks().0.iter().map(|chunk| c_int::from_ne_bytes(*chunk)).collect())
}

/// The child's whole life. Async-signal-safe: see where it is called.
fn child(messages: &[Vec<u8>], to: c_int) -> ! {
    let socket = namespaced_socket();
    for message in messages {
        let answer = match socket {
            Ok(socket) => ask(socket, message),
            Err(errno) => errno | NOT_ASKED,
        };
        let bytes = answer.to_ne_bytes();
        // SAFETY: the pointer and length describe `bytes`; when nobody reads, nobody wants to know.
        unsafe { libc::write(to, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
    }
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

fn namespaced_socket() -> Result<c_int, c_int> {
    // SAFETY: plain integers; only this child moves to the new namespaces. With a user namespace, an
    // ordinary user has CAP_NET_ADMIN over the network namespace that comes with it.
    let moved = unsafe {
        libc::unshare(libc::CLONE_NEWNET) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0
    };
    if !moved {
        return Err(errno());
    }
    // SAFETY: plain integers.
    let socket = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if socket < 0 { Err(errno()) } else { Ok(socket) }
}

fn ask(socket: c_int, message: &[u8]) -> c_int {
    let mut answer = [0_u8; 512];
    // SAFETY: the pointer and length describe `message`, which the kernel reads.
    let sent = unsafe { libc::send(socket, message.as_ptr().cast::<c_void>(), message.len(), 0) };
    if sent < 0 {
        return errno();
    }
    // SAFETY: the pointer and length describe `answer`, which the kernel writes.
    let got = unsafe { libc::recv(socket, answer.as_mut_ptr().cast::<c_void>(), answer.len(), 0) };
    if got < 0 {
        return errno();
    }
    // struct nlmsghdr, then a negative errno
    match answer.get(16..20).and_then(<[u8]>::first_chunk) {
        Some(chunk) if got >= 20 => -c_int::from_ne_bytes(*chunk),
        _ => libc::EBADMSG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_aligned_and_say_their_length() {
        for kind in KINDS {
            let message = add_message(kind, 1);
            assert_eq!(message.len() % 4, 0);
            assert_eq!(message[..4], (message.len() as u32).to_ne_bytes());
        }
    }

    #[test]
    fn an_unknown_discipline_is_told_from_a_known_one() {
        let messages = [add_message("no_such_qdisc", 1), add_message("pfifo", 2)];
        let answers = in_a_child(&messages).unwrap_or_default();
        match answers[..] {
            [unknown, known] if unknown & NOT_ASKED == 0 => {
                assert_eq!((unknown, known), (libc::ENOENT, 0));
            }
            _ => eprintln!("skipped: this machine permits no network namespace: {answers:?}"),
        }
    }
}
