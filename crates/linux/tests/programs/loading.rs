//! Registered, chosen by a socket, and gone when the process ends.

use crate::pair::{Pair, is_available, options, rate};
use ekiden_linux::bpf::{Control, Loaded, Terms};
use ekiden_linux::host::sysctl;
use ekiden_linux::sockets::key::Key;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_linux::sockets::socket::congestion;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_testkit::wait_for;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) fn registered_chosen_and_gone(_: &Path) {
    for control in Control::ALL {
        let loaded = Loaded::load(control).unwrap();
        let name = loaded.name().to_owned();
        assert!(is_available(&name) && !loaded.is_pinned());
        let pair = Pair::new(&options(&name, None));
        assert_eq!(congestion(pair.near.as_fd()).unwrap(), name);
        pair.fill();
        wait_for("data", || {
            TcpInfo::read(pair.near.as_fd()).unwrap().bytes_acked.unwrap() > 1 << 20
        });
        drop(loaded);
        wait_for("its end", || !is_available(&name));
        // who uses it goes on
        let before = TcpInfo::read(pair.near.as_fd()).unwrap().bytes_acked.unwrap();
        wait_for("more", || {
            TcpInfo::read(pair.near.as_fd()).unwrap().bytes_acked.unwrap() > before
        });
        assert_eq!(congestion(pair.near.as_fd()).unwrap(), name);
        pair.close();
        let refused =
            SocketOptions { congestion: vec![name, "reno".into()], ..SocketOptions::default() };
        let (socket, outcomes) = refused.new_stream_socket(false, Stage::Connecting).unwrap();
        assert!(outcomes.any_refused());
        assert_eq!(congestion(socket.as_fd()).unwrap(), "reno");
    }
}

pub(crate) fn two_instances_do_not_meet(_: &Path) {
    let first = Loaded::load(Control::Hold).unwrap();
    let second = Loaded::load(Control::Hold).unwrap();
    assert_ne!(first.name(), second.name());
    let group = second.group("leg", Terms::new(rate("1 Mbit/s"))).unwrap();
    let pair = Pair::new(&options(second.name(), Some(&group)));
    pair.fill();
    // one's group is nobody's to the other
    let refused = options(first.name(), Some(&group));
    let (_, outcomes) = refused.new_stream_socket(false, Stage::Connecting).unwrap();
    assert!(outcomes.in_words(&refused).iter().any(|answer| answer.refused.is_some()));
    let name = first.name().to_owned();
    drop(first);
    wait_for("its end", || !is_available(&name));
    assert!(is_available(second.name()));
    wait_for("a member", || group.seen().unwrap().members == 1);
    pair.close();
}

pub(crate) fn nothing_is_left_of_a_process_that_was_killed(program: &Path) {
    let (mut child, name) = stay(program);
    let own = SocketOptions { pace: Some(rate("4 Mbit/s")), ..options(&name, None) };
    let pair = Pair::new(&own);
    pair.fill();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("its end", || !is_available(&name));
    // a connection that used it goes on, and the next to come has the name
    let acked = || TcpInfo::read(pair.near.as_fd()).unwrap().bytes_acked.unwrap();
    let before = acked();
    wait_for("more", || acked() > before);
    let next = Loaded::load(Control::Hold).unwrap();
    assert_eq!(next.name(), name);
    pair.close();
}

fn stay(program: &Path) -> (Child, String) {
    let mut child =
        Command::new(program).args(["--trial", "stay"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut name = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut name).unwrap();
    (child, name.trim().to_owned())
}

pub(crate) fn the_next_of_the_list_where_no_rate_can_be_held(_: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    let group = loaded.group("leg", Terms::new(rate("8 Mbit/s"))).unwrap();
    let ours = |fd: std::os::fd::BorrowedFd<'_>| congestion(fd).unwrap().starts_with("ekiden_");
    for (next, has) in [(Some("reno"), "reno"), (None, &default())] {
        let mut asked = options(loaded.name(), Some(&group));
        asked.congestion.extend(next.map(str::to_owned));
        asked.mptcp = Some(true);
        let (socket, outcomes) = asked.new_stream_socket(false, Stage::Connecting).unwrap();
        if outcomes.refused(Key::Mptcp) {
            println!("SKIPPED: no Multipath TCP");
            break;
        }
        assert_eq!(congestion(socket.as_fd()).unwrap(), has);
        let answers = outcomes.in_words(&asked);
        let why = |option| answers.iter().find(|answer| answer.option == option).unwrap();
        assert!(why("congestion").refused.as_ref().unwrap().contains("leave `mptcp` out"));
        assert!(why("rate").refused.is_some());
    }
    // what a listening socket had, those it accepts have, too; a leg that asks for it no more has it on neither
    let asked = options(loaded.name(), Some(&group));
    let (listener, _) = asked.new_stream_socket(false, Stage::Listening).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(8).unwrap();
    listener.set_nonblocking(false).unwrap();
    let to = listener.local_addr().unwrap().as_socket().unwrap();
    let _client = TcpStream::connect(to).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert!(ours(listener.as_fd()) && ours(accepted.as_fd()));
    let nothing = SocketOptions::default();
    for (fd, stage) in [(listener.as_fd(), Stage::Listening), (accepted.as_fd(), Stage::Accepted)] {
        assert!(!nothing.apply(fd, stage).any_refused());
        assert_eq!(congestion(fd).unwrap(), default());
        // chosen by the leg itself it stays
        let named = options(loaded.name(), None);
        assert!(!named.apply(fd, stage).any_refused() && ours(fd));
    }
}

fn default() -> String {
    sysctl::read("net.ipv4.tcp_congestion_control").unwrap()
}
