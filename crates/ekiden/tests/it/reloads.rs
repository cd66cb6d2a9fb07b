//! Sequences of reloads: each ends with what the last valid configuration says.

use crate::daemons::home;
use ekiden_testkit::{Daemon, wait_for};
use proptest::prelude::*;
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A configuration that is to be in effect, or one that is refused.
#[derive(Debug, Clone)]
enum Step {
    /// Name, addresses by their places, and whether it logs what informs.
    Valid(u8, Vec<usize>, bool),
    /// Valid but for an address that another program has.
    Taken(u8, Vec<usize>, bool),
    Refused(Bad),
}

#[derive(Debug, Clone, Copy)]
enum Bad {
    Empty,
    /// The beginning of the one in effect.
    Cut,
    Gone,
    NoToml,
    UnknownKey,
}

const ADDRESSES: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let listen = prop::sample::subsequence((0..ADDRESSES).collect::<Vec<_>>(), 1..=ADDRESSES);
    let all = (0_u8..100, listen.prop_shuffle(), any::<bool>());
    let bad = [Bad::Empty, Bad::Cut, Bad::Gone, Bad::NoToml, Bad::UnknownKey];
    prop_oneof![
        4 => all.clone().prop_map(|(name, listen, informs)| Step::Valid(name, listen, informs)),
        2 => all.prop_map(|(name, listen, informs)| Step::Taken(name, listen, informs)),
        2 => prop::sample::select(bad.to_vec()).prop_map(Step::Refused),
    ]
}

fn config(name: u8, listen: &[SocketAddr], informs: bool) -> String {
    let list: Vec<_> = listen.iter().map(|address| format!("\"{address}\"")).collect();
    let level = if informs { "info" } else { "error" };
    format!("name = \"relay{name}\"\nlisten = [{}]\n[log]\nlevel = \"{level}\"\n", list.join(", "))
}

/// Reloads that took effect, and those that were refused.
fn done(daemon: &Daemon) -> usize {
    let reloads = daemon.status()["reloads"].as_u64().unwrap() as usize;
    reloads + daemon.log().matches("stays in effect").count()
}

fn assert_in_effect(daemon: &Daemon, name: u8, listen: &[SocketAddr], all: &[SocketAddr]) {
    let status = daemon.status();
    assert_eq!(status["name"], format!("relay{name}"));
    let bound: Vec<SocketAddr> = serde_json::from_value(status["listen"].clone()).unwrap();
    assert_eq!(bound, listen);
    for address in all {
        let listens = || TcpStream::connect(address).is_ok();
        wait_for("the address", || listens() == listen.contains(address));
    }
}

#[test]
fn a_refused_reload_leaves_the_log_level() {
    let other = TcpListener::bind("127.0.41.9:0").unwrap();
    let free = TcpListener::bind("127.0.41.8:0").unwrap().local_addr().unwrap();
    let home = home(&config(1, &[free], true));
    let mut daemon = home.serve_by(home.command(&["serve"]));
    let taken = [free, other.local_addr().unwrap()];
    fs::write(daemon.config(), config(2, &taken, false)).unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the refusal", || done(&daemon) > 0);
    assert_in_effect(&daemon, 1, &[free], &[free]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    assert!(daemon.log().contains("stopping: no new connections"), "{}", daemon.log());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn the_last_valid_configuration_is_in_effect(steps in prop::collection::vec(step(), 1..8)) {
        let free = |place| TcpListener::bind((format!("127.0.41.{}", place + 1), 0)).unwrap();
        let all: [SocketAddr; ADDRESSES] =
            std::array::from_fn(free).map(|socket| socket.local_addr().unwrap());
        let other = TcpListener::bind("127.0.41.9:0").unwrap();
        let at = |listen: &[usize]| -> Vec<_> { listen.iter().map(|place| all[*place]).collect() };
        let (mut name, mut listen, mut informs) = (100, at(&[0]), true);
        let mut text = config(name, &listen, informs);
        let home = home(&text);
        let mut daemon = home.serve_by(home.command(&["serve"]));
        for (nth, step) in steps.iter().enumerate() {
            match step {
                Step::Valid(new, places, does) => {
                    (name, listen, informs) = (*new, at(places), *does);
                    text = config(name, &listen, informs);
                    fs::write(daemon.config(), &text).unwrap();
                }
                Step::Taken(new, places, does) => {
                    let taken = [at(places), vec![other.local_addr().unwrap()]].concat();
                    fs::write(daemon.config(), config(*new, &taken, *does)).unwrap();
                }
                Step::Refused(bad) => match bad {
                    Bad::Empty => fs::write(daemon.config(), "").unwrap(),
                    Bad::Cut => fs::write(daemon.config(), &text[..text.len() - 3]).unwrap(),
                    Bad::Gone => drop(fs::remove_file(daemon.config())),
                    Bad::NoToml => fs::write(daemon.config(), "name = [\n").unwrap(),
                    Bad::UnknownKey => fs::write(daemon.config(), format!("colour = 1\n{text}")).unwrap(),
                },
            }
            daemon.signal(Signal::HUP);
            wait_for("the reload", || done(&daemon) > nth);
            assert_in_effect(&daemon, name, &listen, &all);
        }
        // the log's level, too
        daemon.signal(Signal::TERM);
        prop_assert_eq!(daemon.code(), Some(0));
        prop_assert_eq!(daemon.log().contains("stopping: no new connections"), informs);
    }
}
