//! Devices, addresses, neighbours and routes of a network namespace, by rtnetlink, request by
//! request.

mod addresses;
mod links;
mod lookup;
mod policy;
mod routes;

pub use addresses::LocalAddress;
pub use links::{End, LinkStatistics, PATIENCE};
pub use lookup::is_local;
pub use policy::MarkRule;
pub use routes::{Route, RouteMetrics};

use crate::namespaces::netns::Netns;
use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::cell::Cell;
use std::fmt;
use std::io;

// include/uapi/linux/netlink.h
const NLMSGERR_ATTR_MSG: u16 = 1;
/// The header of the refused request, which the kernel repeats in front of its explanation.
const ECHOED_HEADER: usize = 16;

/// A conversation with the kernel about one namespace's network.
pub struct Netlink {
    socket: Socket,
    sequence: Cell<u32>,
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

/// A refused request: its subject, the error number and the kernel's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
    errno: i32,
    said: Option<String>,
}

impl Failure {
    fn new(what: &str, errno: i32) -> Self {
        Self { what: what.to_owned(), errno, said: None }
    }

    /// With the kernel's explanation, if there is one in these attributes.
    fn explained(what: &str, errno: i32, attributes: &[u8]) -> Self {
        let explanation =
            NlasIterator::new(attributes).flatten().find(|a| a.kind() == NLMSGERR_ATTR_MSG);
        let said = explanation.map(|attribute| {
            let text = String::from_utf8_lossy(attribute.value());
            text.trim_end_matches('\0').to_owned()
        });
        Self { said, ..Self::new(what, errno) }
    }

    fn unreadable(what: &str, error: &dyn fmt::Display) -> Self {
        Self { said: Some(error.to_string()), ..Self::new(what, libc::EBADMSG) }
    }

    /// The error number, as `EEXIST`.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "the kernel refused {}: {error}", self.what)?;
        match &self.said {
            Some(said) => write!(f, ": {said}"),
            None if self.errno == libc::EPERM => {
                write!(f, "; it takes CAP_NET_ADMIN in that network namespace")
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl Netlink {
    /// Opens one that speaks of `netns`, from wherever it is used. Fails when the namespace may
    /// not be entered, or no descriptor is left.
    pub fn open(netns: &Netns) -> io::Result<Self> {
        netns.run(Self::here)?
    }

    /// Opens one that speaks of the calling thread's namespace. Fails when no descriptor is left.
    pub fn here() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        // a kernel without them (before 4.12) explains less
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    fn change(&self, what: &str, message: RouteNetlinkMessage, flags: u16) -> Result<(), Failure> {
        self.ask(what, message, flags).map(drop)
    }

    fn ask(
        &self,
        what: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Failure> {
        let failed =
            |error: io::Error| Failure::new(what, error.raw_os_error().unwrap_or(libc::EIO));
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let mut request = NetlinkMessage::from(message);
        // NLM_F_DUMP shares its bits with NLM_F_REPLACE and NLM_F_EXCL
        let acknowledged = if flags == NLM_F_DUMP { 0 } else { NLM_F_ACK };
        request.header.flags = NLM_F_REQUEST | acknowledged | flags;
        request.header.sequence_number = sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            let datagram = match self.socket.recv_from_full() {
                Ok((datagram, _)) => datagram,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| Failure::unreadable(what, &error))?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(ECHOED_HEADER)..).unwrap_or_default();
                if answer.header.sequence_number != sequence {
                    continue; // left over from a request that ended early
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Error(error) => {
                        return refusal(what, &error).map_or(Ok(answers), Err);
                    }
                    // so ends a dump, also one that fails
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(Failure::explained(what, -done.code, &done.extended_ack));
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// The kernel's refusal; `None` for an acknowledgement.
fn refusal(what: &str, error: &ErrorMessage) -> Option<Failure> {
    let errno = -error.code?.get();
    let attributes = error.header.get(ECHOED_HEADER..).unwrap_or_default();
    Some(Failure::explained(what, errno, attributes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let failure = Netlink::here().unwrap().link_statistics("nosuchdevice0").unwrap_err();
        assert_eq!(failure.errno(), libc::ENODEV);
        assert!(failure.to_string().contains("nosuchdevice0"), "{failure}");
    }

    #[test]
    fn loopback_is_among_the_devices() {
        let devices = Netlink::here().unwrap().devices().unwrap();
        assert!(devices.contains(&("lo".to_owned(), 1)), "{devices:?}");
    }

    #[test]
    fn the_loopback_device_has_statistics() {
        let here = Netlink::here().unwrap();
        let before = here.link_statistics("lo").unwrap();
        assert!(before.rx_packets == before.tx_packets, "{before:?}");
    }
}
