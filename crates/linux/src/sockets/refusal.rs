//! Why an option was refused, and the remedy, in words.

use crate::bpf::Control;
use crate::host::sysctl;
use crate::sockets::key::Key;
use crate::sockets::options::SocketOptions;
use crate::sockets::outcome::Stage;
use crate::sockets::sockopt::Errno;
use ekiden_model::units::Bytes;

/// Why, in a few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The kernel answered with an error.
    Errno(Errno),
    /// The value read back is not the requested one, and no error was given.
    Adjusted,
    /// The buffer was cut at the system's limit.
    Capped,
    /// The kernel has a smaller or larger bound of its own.
    Bound,
    /// Counted in whole seconds.
    WholeSeconds,
    /// A pace of less than a byte a second.
    NoPace,
    /// Settled in the handshake; must be set on the listening socket.
    SetOnListener,
    /// The buffer is granted, its window scale was settled in the handshake.
    ScaleSettled,
    /// The window clamp is granted, and the kernel will move it.
    ClampMoves,
    /// Means nothing on a listening socket.
    NotOnListener,
    /// Has no effect on an established connection.
    NotOnAccepted,
    /// An IPv4 source for an IPv6 destination, or the other way round.
    OtherFamily,
    /// `net.ipv4.tcp_fastopen` lacks the server's bit.
    FastOpenOff,
    /// The socket is plain TCP.
    NotMultipath,
    /// The socket's congestion control holds no rate.
    NotHeld,
    /// The program that holds the rate is not the one that was pinned any more.
    Replaced,
    /// More congestion controls than are ever tried.
    TooMany,
}

impl Refusal {
    pub(crate) fn text(
        self,
        key: Key,
        options: &SocketOptions,
        asked: &str,
        stage: Stage,
    ) -> String {
        let (kernel_name, since) = key.kernel();
        match self {
            Self::Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP) if options.mptcp == Some(true) => {
                format!(
                    "this kernel has no {kernel_name} on Multipath TCP sockets{}; leave `mptcp` out",
                    since.map(|since| format!(" (plain TCP: Linux {since})")).unwrap_or_default()
                )
            }
            Self::Errno(libc::EOPNOTSUPP) if key == Key::FastOpen => fast_open_off(1),
            Self::Errno(libc::ENOPROTOOPT | libc::EPROTONOSUPPORT) => match since {
                Some(since) if key == Key::Mptcp => format!(
                    "this kernel has no Multipath TCP (Linux {since} with CONFIG_MPTCP); plain TCP is used"
                ),
                Some(since) => {
                    format!("this kernel is too old: {kernel_name} came with Linux {since}")
                }
                None => format!("this kernel has no {kernel_name}"),
            },
            Self::Errno(errno) => error(errno, key, asked),
            Self::Adjusted => format!("the kernel granted another value than {asked}"),
            Self::Capped => capped(key, options),
            Self::Bound => "the kernel's own smallest size".into(),
            Self::WholeSeconds => "the kernel counts whole seconds here, at least 1 s".into(),
            Self::NoPace => "a pace below 8 bit/s would switch pacing off; ask for more".into(),
            Self::SetOnListener => format!(
                "settled in the handshake: {kernel_name} counts on the listening socket, from which this \
                 connection inherited it"
            ),
            Self::ScaleSettled => {
                "the window's scale was settled in the handshake; set this on the listening socket as well"
                    .into()
            }
            Self::ClampMoves => "the kernel moves it as data arrives, and the window's scale was settled \
                                 in the handshake; set this or `receive_buffer` on the listening socket"
                .into(),
            Self::NotOnListener => match key {
                Key::Source => "a listening socket's address is where it listens".into(),
                _ => "not applicable to a listening socket".into(),
            },
            Self::NotOnAccepted => match key {
                Key::Source => "the address the peer connected to".into(),
                Key::SynCount => "not applicable: the handshake is over".into(),
                Key::FastOpen => {
                    "not applicable: inherited from the listening socket; TCP_INFO says whether it was used"
                        .into()
                }
                _ => "not applicable to an accepted connection".into(),
            },
            Self::OtherFamily => {
                format!("{asked} is not of this destination's address family; give a source of each family")
            }
            Self::FastOpenOff => fast_open_off(2),
            Self::NotMultipath => match stage {
                Stage::Accepted => {
                    "the peer did not ask for Multipath TCP, or the listening socket is plain TCP".into()
                }
                Stage::Listening | Stage::Connecting => {
                    let off = sysctl::read("net.mptcp.enabled").is_some_and(|text| text == "0");
                    if off {
                        "net.mptcp.enabled is 0; `sysctl -w net.mptcp.enabled=1`".into()
                    } else {
                        "the socket was made as plain TCP".into()
                    }
                }
            },
            Self::NotHeld if options.mptcp == Some(true) => {
                "a rate is held for plain TCP sockets; leave `mptcp` out".into()
            }
            Self::NotHeld => {
                "the socket got another congestion control than `hold`, and others hold no rate".into()
            }
            Self::Replaced => "what `ekiden bpf load` pinned was removed or put there anew since the configuration \
                               was read; `ekiden bpf load`, and reload"
                .into(),
            Self::TooMany => "at most 255 congestion controls are tried".into(),
        }
    }
}

fn error(errno: Errno, key: Key, asked: &str) -> String {
    let (kernel_name, _) = key.kernel();
    match (key, errno) {
        (Key::Congestion, libc::ENOENT)
            if Control::named(asked).is_some() || Control::is_ours(asked) =>
        {
            format!(
                "`{asked}` is one of Ekiden's BPF programs and is not loaded; `ekiden doctor` names the reason"
            )
        }
        (Key::Congestion, libc::ENOENT) => {
            let available = sysctl::read("net.ipv4.tcp_available_congestion_control");
            format!(
                "not available in this kernel, which has {}; try `modprobe tcp_{asked}`",
                available.as_deref().unwrap_or("no list of them")
            )
        }
        (Key::Congestion, libc::EPERM) => {
            let allowed =
                sysctl::read("net.ipv4.tcp_allowed_congestion_control").unwrap_or_default();
            format!(
                "not in net.ipv4.tcp_allowed_congestion_control, which is `{allowed}`; \
                 `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{allowed} {asked}\"` or run with \
                 CAP_NET_ADMIN"
            )
        }
        (Key::Mark, libc::EPERM) => {
            "SO_MARK needs CAP_NET_ADMIN (or CAP_NET_RAW since Linux 5.17)".into()
        }
        (Key::Device, libc::EPERM) => {
            "SO_BINDTODEVICE needs CAP_NET_RAW before Linux 5.7, and to change a device".into()
        }
        (Key::Device, libc::ENODEV) => {
            format!("there is no network device `{asked}`; `ip link` lists them")
        }
        (Key::Device, libc::EINVAL) => {
            format!("`{asked}` is not a device's name (at most 15 bytes)")
        }
        (Key::Source, libc::EADDRNOTAVAIL) => {
            format!("no device has the address {asked}; `ip address add {asked} dev …`")
        }
        (Key::Source, libc::EADDRINUSE) => "no local port is free for this address; widen \
             net.ipv4.ip_local_port_range or add source addresses"
            .into(),
        (_, libc::EPERM) => format!("{kernel_name} needs CAP_NET_ADMIN"),
        (_, libc::EINVAL | libc::EDOM | libc::ERANGE) => {
            format!("the kernel takes {} for {kernel_name}", key.range())
        }
        _ => format!("{kernel_name}: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

fn capped(key: Key, options: &SocketOptions) -> String {
    let (sysctl_name, asked) = match key {
        Key::SendBuffer => ("net.core.wmem_max", options.send_buffer),
        _ => ("net.core.rmem_max", options.receive_buffer),
    };
    let limit = sysctl::read(sysctl_name)
        .and_then(|text| text.parse().ok())
        .map_or_else(|| "too small".into(), |bytes| Bytes::new(bytes).to_string());
    // the kernel doubles the passed value, and bounds it
    let needed = asked.unwrap_or_default().as_u64().div_ceil(2);
    format!(
        "{sysctl_name} is {limit} (the kernel grants twice that); raise it with \
         `sysctl -w {sysctl_name}={needed}` or run with CAP_NET_ADMIN"
    )
}

fn fast_open_off(bit: u64) -> String {
    let now = sysctl::read("net.ipv4.tcp_fastopen").and_then(|text| text.parse().ok()).unwrap_or(0);
    let (side, bits) = if bit == 1 { ("clients", now | 1) } else { ("servers", now | 2) };
    format!(
        "net.ipv4.tcp_fastopen is {now}, without the bit for {side}; \
         `sysctl -w net.ipv4.tcp_fastopen={bits}`"
    )
}
