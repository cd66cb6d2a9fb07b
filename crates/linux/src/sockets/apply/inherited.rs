//! What accepted sockets have from their listening socket, looked at once for all of them.

use crate::bpf::Control;
use crate::sockets::sockopt;
use libc::{IPPROTO_TCP, SOL_SOCKET};
use std::os::fd::BorrowedFd;

/// What is known of a socket that `accept` returned. By default nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inherited {
    /// `TCP_NODELAY`.
    pub(super) no_delay: Option<bool>,
    /// The congestion control is none of ours. A route's `congctl` comes before the listening socket's: where that
    /// names one of ours, the operator has chosen it.
    pub(super) foreign: bool,
}

impl Inherited {
    /// What a listening TCP socket passes on. Nothing is known of what Multipath TCP passes on, nor of what is no
    /// socket.
    pub fn from_listener(listener: BorrowedFd<'_>) -> Self {
        if sockopt::get_int(listener, SOL_SOCKET, libc::SO_PROTOCOL) != Ok(IPPROTO_TCP) {
            return Self::default();
        }
        let no_delay = sockopt::get_int(listener, IPPROTO_TCP, libc::TCP_NODELAY);
        let control = sockopt::get_text(listener, IPPROTO_TCP, libc::TCP_CONGESTION);
        Self {
            no_delay: no_delay.ok().map(|on| on != 0),
            foreign: control.is_ok_and(|name| !Control::is_ours(&name)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sockets::options::SocketOptions;
    use crate::sockets::outcome::Stage;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    fn no_delay_of(socket: BorrowedFd<'_>) -> bool {
        sockopt::get_int(socket, IPPROTO_TCP, libc::TCP_NODELAY) == Ok(1)
    }

    #[test]
    fn accepted_sockets_have_what_their_listener_is_said_to_pass_on() {
        for (listening, accepting) in [(true, true), (true, false), (false, true), (false, false)] {
            let of = |on| SocketOptions { no_delay: Some(on), ..SocketOptions::default() };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            of(listening).apply(listener.as_fd(), Stage::Listening);
            let inherited = Inherited::from_listener(listener.as_fd());
            assert_eq!(inherited, Inherited { no_delay: Some(listening), foreign: true });
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let accepted = listener.accept().unwrap().0;
            assert_eq!(no_delay_of(accepted.as_fd()), listening);
            let outcomes = of(accepting).apply_accepted(accepted.as_fd(), inherited);
            assert_eq!(no_delay_of(accepted.as_fd()), accepting);
            let told = outcomes.in_words(&of(accepting));
            assert!(told.len() == 1 && told[0].granted == Some(accepting.to_string()), "{told:?}");
        }
    }

    #[test]
    fn nothing_is_known_of_what_is_no_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Inherited::from_listener(file.as_fd()), Inherited::default());
    }
}
