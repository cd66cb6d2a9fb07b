//! The congestion controls of our own in the running kernel: registered, chosen, grouped; nothing left behind. And
//! their arithmetic beside the model's, run where it would run for a socket.
//!
//! It takes root. One thread at a time, since names are the kernel's and for everybody.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ekiden_linux::bpf::{self, Control, Group, Loaded, Missing, Terms};
use ekiden_linux::host::sysctl;
use ekiden_linux::sockets::key::Key;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_linux::sockets::socket::congestion;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::control::congestion::{
    Ack, Algorithm, Config, Control as _, Counting, SlowStart, WestwoodPlus,
};
use ekiden_model::control::rate_hold::rounds::{self, Agreement, Round, Rounds};
use ekiden_model::control::scheduler::Lane;
use ekiden_model::units::{Rate, Span, Time};
use ekiden_testkit::wait_for;
use libbpf_rs::{ObjectBuilder, ProgramInput};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use socket2::{SockFilter, SockRef};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;
use std::{env, fs};

const NOBODY: u32 = 65_534;

type Test = fn(&Path);

const TESTS: &[(&str, Test)] = &[
    ("judged_as_the_model_judges", judged_as_the_model_judges),
    ("filtered_as_the_model_filters", filtered_as_the_model_filters),
    ("registered_chosen_and_gone", registered_chosen_and_gone),
    ("a_rate_is_divided_among_the_busy", a_rate_is_divided_among_the_busy),
    (
        "a_group_is_given_back_by_the_last_that_has_it",
        a_group_is_given_back_by_the_last_that_has_it,
    ),
    (
        "the_next_of_the_list_where_no_rate_can_be_held",
        the_next_of_the_list_where_no_rate_can_be_held,
    ),
    ("silent_peers_take_no_share_of_the_rate", silent_peers_take_no_share_of_the_rate),
    ("a_socket_alone_holds_its_own_rate", a_socket_alone_holds_its_own_rate),
    ("two_instances_do_not_meet", two_instances_do_not_meet),
    ("nothing_is_left_of_a_process_that_was_killed", nothing_is_left_of_a_process_that_was_killed),
    (
        "without_privilege_it_is_chosen_and_not_loaded",
        without_privilege_it_is_chosen_and_not_loaded,
    ),
    ("pinned_for_a_user_without_privilege", pinned_for_a_user_without_privilege),
    ("permission_denied_is_not_reported_as_missing", permission_denied_is_not_reported_as_missing),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--trial") => return inside(&arguments[2..]),
        Some(flag) if flag.starts_with("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        assert!(env::var_os("CI").is_none(), "programs in the kernel take root");
        println!("SKIPPED: programs in the kernel take root");
        return ExitCode::SUCCESS;
    }
    if let Err(missing @ (Missing::Types | Missing::Kernel(..))) = bpf::Needs::look().met() {
        assert!(env::var_os("CI").is_none(), "{missing}");
        println!("SKIPPED: {missing}");
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    // where anybody can run it
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("programs-trial");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let only = arguments.iter().skip(1).find(|word| !word.starts_with('-'));
    for (name, test) in TESTS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only)))
    {
        test(&program);
        println!("{name} ... ok");
    }
    ExitCode::SUCCESS
}

/// What this program does as a child: loads and stays, or tries without privilege.
fn inside(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["stay"] => {
            let loaded = Loaded::load(Control::Hold).unwrap();
            println!("{}", loaded.name());
            sleep(Duration::from_secs(60));
        }
        ["choose", name] => {
            assert_eq!(Loaded::load(Control::Hold).unwrap_err(), Missing::Privilege);
            let (socket, outcomes) =
                options(name, None).new_stream_socket(false, Stage::Connecting).unwrap();
            assert!(!outcomes.any_refused(), "{:?}", outcomes.in_words(&options(name, None)));
            assert_eq!(congestion(socket.as_fd()).unwrap(), name);
        }
        ["pinned", pins] => {
            let loaded = Loaded::open(Control::Hold, Path::new(pins)).unwrap().unwrap();
            assert!(loaded.is_pinned());
            let group = loaded.group("leg", Terms::new(rate("2 Mbit/s"))).unwrap();
            let pair = Pair::new(&options(loaded.name(), Some(&group)));
            pair.fill();
            wait_for("a member", || group.seen().unwrap().members == 1);
            let other = Loaded::open(Control::Hold, Path::new(pins)).unwrap().unwrap();
            // both are used by this process; the first is not given away
            let second = other.group("leg", Terms::new(rate("1 Mbit/s"))).unwrap();
            assert_ne!(second, group);
            assert_eq!(second.seen().unwrap().members, 0);
        }
        ["hidden", pins] => {
            let hidden = Loaded::open(Control::Hold, Path::new(pins)).unwrap_err();
            assert!(matches!(hidden, Missing::Hidden(_)), "{hidden}");
            let judged = bpf::pinned(Path::new(pins));
            assert_eq!(judged, Control::ALL.map(|control| (control, Err(hidden.clone()))));
        }
        _ => panic!("{words:?}"),
    }
    ExitCode::SUCCESS
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn options(name: &str, group: Option<&Group>) -> SocketOptions {
    SocketOptions {
        congestion: vec![name.to_owned()],
        rate: group.cloned(),
        ..SocketOptions::default()
    }
}

/// A connection over loopback whose near end has the options, and whose far end reads.
struct Pair {
    near: TcpStream,
    far: TcpStream,
}

impl Pair {
    fn new(options: &SocketOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, outcomes) = options.new_stream_socket(false, Stage::Connecting).unwrap();
        assert!(!outcomes.any_refused(), "{:?}", outcomes.in_words(options));
        socket.set_nonblocking(false).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mut reads = far.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while reads.read(&mut bytes).is_ok_and(|read| read > 0) {}
        });
        Self { near: socket.into(), far }
    }

    /// Always has more to send.
    fn fill(&self) {
        let mut near = self.near.try_clone().unwrap();
        thread::spawn(move || while near.write_all(&[0; 1 << 16]).is_ok() {});
    }

    fn close(self) {
        // what waits is given up, and the thread that fills it ends
        ekiden_linux::sockets::socket::abort(self.near.as_fd()).unwrap();
        let _ = self.near.shutdown(std::net::Shutdown::Both);
    }

    fn pace(&self) -> u64 {
        TcpInfo::read(self.near.as_fd()).unwrap().pacing_rate.unwrap()
    }
}

fn is_available(name: &str) -> bool {
    let all = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap();
    all.split_whitespace().any(|other| other == name)
}

fn registered_chosen_and_gone(_: &Path) {
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

fn a_rate_is_divided_among_the_busy(_: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    let group = loaded.group("leg", Terms::new(rate("8 Mbit/s"))).unwrap();
    let options = options(loaded.name(), Some(&group));
    // a segment is what the device takes at most; 40 bytes of addresses and ports, 12 of time stamps
    let part = |pair: &Pair, of: u64| {
        let mss = u64::from(TcpInfo::read(pair.near.as_fd()).unwrap().snd_mss);
        1_000_000 / of * mss / (mss + 52)
    };
    let bulk = |weight| {
        let pair = Pair::new(&options);
        group.join(pair.near.as_fd(), weight, Lane::Bulk).unwrap();
        pair
    };
    let (one, quiet) = (bulk(1), bulk(1));
    one.fill();
    let is = |pair: &Pair, of: u64| pair.pace().abs_diff(part(pair, of)) <= 2;
    wait_for("all of it", || is(&one, 1));
    let two = bulk(1);
    two.fill();
    wait_for("halves", || is(&one, 2) && is(&two, 2));
    let seen = group.seen().unwrap();
    assert_eq!((seen.members, seen.weights), (3, 2));
    assert_eq!(seen.rate, 8_000_000);
    // a heavier third
    let three = bulk(2);
    three.fill();
    wait_for("quarters", || is(&one, 4) && is(&two, 4) && is(&three, 2));
    three.close();
    two.close();
    wait_for("all again", || is(&one, 1));
    // one that somebody waits for: all but a sixteenth, until it turns out to be bulk
    let first = Pair::new(&options);
    first.fill();
    let sixteenth = |pair: &Pair, parts: u64| {
        let whole = part(pair, 1);
        pair.pace().abs_diff(whole / 16 * parts) <= whole / 1_000
    };
    wait_for("the first lane", || sixteenth(&first, 15) && sixteenth(&one, 1));
    let other = Pair::new(&options);
    other.fill();
    let half = |pair: &Pair| pair.pace().abs_diff(part(pair, 32) * 15) <= part(pair, 1_000);
    wait_for("two of it", || half(&first) && half(&other));
    other.close();
    group.join(first.near.as_fd(), 1, Lane::Bulk).unwrap();
    wait_for("bulk like the other", || is(&one, 2) && is(&first, 2));
    first.close();
    wait_for("all once more", || is(&one, 1));
    // another agreement holds for who is there, and not before it is agreed to
    let again = loaded.group("leg", Terms::new(rate("4 Mbit/s"))).unwrap();
    assert_eq!(again.terms().rate, rate("4 Mbit/s"));
    let before = group.seen().unwrap().delivered;
    wait_for("more", || group.seen().unwrap().delivered > before + (1 << 18));
    assert!(is(&one, 1), "{}", one.pace());
    again.agree().unwrap();
    wait_for("half the rate", || is(&one, 2));
    one.close();
    quiet.close();
    wait_for("nobody", || {
        let seen = group.seen().unwrap();
        (seen.members, seen.weights, seen.light) == (0, 0, 0)
    });
}

fn a_group_is_given_back_by_the_last_that_has_it(_: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    let group = |key: &str| loaded.group(key, Terms::new(rate("8 Mbit/s")));
    let mut all: Vec<Group> = (0..64).map(|nth| group(&nth.to_string()).unwrap()).collect();
    let full = group("one more").unwrap_err();
    assert!(full.to_string().contains("64"), "{full}");
    // a connection that outlives its leg keeps its rate, and its group goes to a leg when no other is left
    let first = all.remove(0);
    let pair = Pair::new(&options(loaded.name(), Some(&first)));
    pair.fill();
    wait_for("a member", || first.seen().unwrap().members == 1);
    drop(first);
    all.remove(0);
    let other = group("another").unwrap();
    assert_eq!(other.seen().unwrap().members, 0);
    let info = || TcpInfo::read(pair.near.as_fd()).unwrap();
    let before = info().bytes_acked.unwrap();
    wait_for("more", || info().bytes_acked.unwrap() > before + (1 << 18));
    let mss = u64::from(info().snd_mss);
    let most = 1_000_000 * mss / (mss + 52);
    assert!(pair.pace() <= most, "{} of {most}", pair.pace());
    assert_eq!(group("the last").unwrap().seen().unwrap().members, 1);
    pair.close();
}

fn the_next_of_the_list_where_no_rate_can_be_held(_: &Path) {
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

fn silent_peers_take_no_share_of_the_rate(_: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    for lane in [Lane::Bulk, Lane::Interactive] {
        let group = loaded.group("leg", Terms::new(rate("8 Mbit/s"))).unwrap();
        let options = options(loaded.name(), Some(&group));
        let (one, dead) = (Pair::new(&options), Pair::new(&options));
        group.join(one.near.as_fd(), 1, Lane::Bulk).unwrap();
        group.join(dead.near.as_fd(), 1, lane).unwrap();
        one.fill();
        dead.fill();
        wait_for("both", || group.seen().unwrap().members == 2);
        let info = |pair: &Pair| TcpInfo::read(pair.near.as_fd()).unwrap();
        wait_for("data", || info(&dead).bytes_acked.unwrap() > 1 << 18);
        // nothing that comes there is answered any more
        let nothing = [SockFilter::new(0x06, 0, 0, 0)];
        SockRef::from(&dead.far).attach_filter(&nothing).unwrap();
        wait_for("three time-outs", || info(&dead).retransmits >= 3);
        let mss = u64::from(info(&one).snd_mss);
        wait_for("all of it", || {
            let seen = group.seen().unwrap();
            // of the rate that is held now, which a busy machine's late arrivals may have lowered
            (seen.members, seen.weights, seen.light) == (2, 1, 0)
                && one.pace().abs_diff(seen.rate / 8 * mss / (mss + 52)) <= 2
        });
        assert!(info(&dead).retransmits >= 3);
        dead.close();
        one.close();
        wait_for("nobody", || group.seen().unwrap().members == 0);
    }
}

fn a_socket_alone_holds_its_own_rate(_: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    let own = SocketOptions { pace: Some(rate("4 Mbit/s")), ..options(loaded.name(), None) };
    let pair = Pair::new(&own);
    pair.fill();
    let info = || TcpInfo::read(pair.near.as_fd()).unwrap();
    let mss = u64::from(info().snd_mss);
    wait_for("its rate", || pair.pace() == 500_000 * mss / (mss + 52));
    // without any, what everybody may send at first, and the kernel's "unlimited"
    let none = Pair::new(&options(loaded.name(), None));
    ekiden_linux::sockets::socket::spread(none.near.as_fd()).unwrap();
    none.fill();
    wait_for("data", || TcpInfo::read(none.near.as_fd()).unwrap().bytes_acked.unwrap() > 1 << 16);
    assert_eq!(TcpInfo::read(none.near.as_fd()).unwrap().snd_cwnd, 10);
    none.close();
    pair.close();
}

fn two_instances_do_not_meet(_: &Path) {
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

fn stay(program: &Path) -> (Child, String) {
    let mut child =
        Command::new(program).args(["--trial", "stay"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut name = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut name).unwrap();
    (child, name.trim().to_owned())
}

fn nothing_is_left_of_a_process_that_was_killed(program: &Path) {
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

fn as_nobody(program: &Path, arguments: &[&str]) {
    let output = Command::new(program)
        .arg("--trial")
        .args(arguments)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn without_privilege_it_is_chosen_and_not_loaded(program: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    as_nobody(program, &["choose", loaded.name()]);
}

/// A BPF file system of our own.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let done =
            Command::new("mount").args(["-t", "bpf", "-o", "mode=0700", "bpf"]).arg(&at).status();
        done.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn pinned_for_a_user_without_privilege(program: &Path) {
    let pins = program.parent().unwrap().join("pins");
    assert!(Loaded::open(Control::Hold, &pins).unwrap().is_none());
    let pin = || bpf::pin(Control::Hold, &pins, Some((NOBODY, NOBODY)));
    let (name, before) = match pin() {
        Err(Missing::Place(why)) if env::var_os("CI").is_none() => {
            return println!("SKIPPED: no BPF file system can be mounted: {why}");
        }
        pinned => pinned.unwrap(),
    };
    assert!(is_available(&name) && !before);
    // of two at once one finds what the other did
    let both =
        thread::scope(|scope| [scope.spawn(pin), scope.spawn(pin)].map(|t| t.join().unwrap()));
    assert_eq!(both, [Ok((name.clone(), true)), Ok((name.clone(), true))]);
    assert_eq!(bpf::pinned(&pins), [(Control::Hold, Ok(name.clone()))]);
    as_nobody(program, &["pinned", pins.to_str().unwrap()]);
    let opened = Loaded::open(Control::Hold, &pins).unwrap().unwrap();
    let group = opened.group("leg", Terms::new(rate("8 Mbit/s"))).unwrap();
    let mut asked = options(&name, Some(&group));
    asked.congestion.push("reno".into());
    let chosen = || {
        let (socket, outcomes) = asked.new_stream_socket(false, Stage::Connecting).unwrap();
        (congestion(socket.as_fd()).unwrap(), outcomes.refused(Key::Rate))
    };
    assert!(opened.is_current() && group.is_current());
    assert_eq!(chosen(), (name.clone(), false));
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert!(!pins.exists() && !opened.is_current());
    wait_for("its end", || !is_available(&name));
    // put there anew it is another one, whatever its name: it knows nothing of the groups from before
    assert_eq!(bpf::pin(Control::Hold, &pins, None), Ok((name.clone(), false)));
    assert!(!opened.is_current() && !group.is_current());
    assert_eq!(chosen(), ("reno".into(), true));
    // and what another release has left gives way
    let release = pins.join("hold-release");
    fs::remove_file(&release).unwrap();
    std::os::unix::fs::symlink("another", &release).unwrap();
    let opened = Loaded::open(Control::Hold, &pins).unwrap().unwrap();
    assert_eq!(bpf::pin(Control::Hold, &pins, None).map(|(_, before)| before), Ok(false));
    assert!(!opened.is_current());
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert_eq!(bpf::unpin(&pins).unwrap(), []);
}

fn permission_denied_is_not_reported_as_missing(program: &Path) {
    // as systemd mounts /sys/fs/bpf
    let Some(mounted) = Mounted::new(program.parent().unwrap().join("bpf")) else {
        assert!(env::var_os("CI").is_none(), "no BPF file system can be mounted");
        println!("SKIPPED: no BPF file system can be mounted");
        return;
    };
    let pins = mounted.0.join("ekiden");
    bpf::pin(Control::Hold, &pins, Some((NOBODY, NOBODY))).unwrap();
    as_nobody(program, &["hidden", pins.to_str().unwrap()]);
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert!(!pins.exists() && mounted.0.exists());
}

/// The programs of `trial.bpf.c`, which run the arithmetic alone.
fn trial(name: &str, run: impl Fn(&dyn Fn(&mut [u8]))) {
    #[repr(C, align(8))]
    struct Aligned<T: ?Sized>(T);
    static TRIAL: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/trial.bpf.o"));
    let object = ObjectBuilder::default().open_memory(&TRIAL.0).unwrap().load().unwrap();
    let program = object.progs_mut().find(|program| program.name() == name).unwrap();
    run(&|context| {
        let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
        assert_eq!(program.test_run(input).unwrap().return_value, 0);
    });
}

/// Words of eight and of four bytes in a row.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn long(mut self, words: &[u64]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn short(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// One run of a group: what was agreed, and round after round.
fn runs() -> impl Strategy<Value = (Agreement, Vec<(Round, [u64; 6])>)> {
    let agreement = (
        prop_oneof![1_u64..1 << 20, 1_u64..1 << 36],
        prop_oneof![Just(0_u64), 1_u64..1 << 36],
        prop_oneof![Just(0_u32), 1_u32..1_000_000],
        prop_oneof![Just(0_u32), 50_u32..800],
        prop_oneof![Just(0_u32), 1_u32..200_000],
        any::<bool>(),
    );
    let round = (
        0_u64..3_000_000,
        0_u64..150,
        0_u64..60,
        0_u64..101,
        0_u64..101,
        0_u64..101,
        0_u64..2_000_000,
    );
    let asked =
        (0_u64..1 << 22, 0_u64..100, 1_u64..100, 0_u64..2_000_000, 0_u64..2_000_000, 0_u64..9_000);
    let rounds = prop::collection::vec((round, asked), 1..40);
    (agreement, rounds).prop_map(|((rate, line, queue, gain, nominal, dedicated), rounds)| {
        let agreement = Agreement { rate, line, queue, gain, nominal, dedicated };
        let mut now = 1_000_000;
        let round = |((span, arrived, lost, late, stood, pressed, rtt), asked): (
            (u64, u64, u64, u64, u64, u64, u64),
            _,
        )| {
            now += span;
            // percents of what the rate would bring
            let full = (u128::from(rate) * u128::from(span) / 1_000_000) as u64;
            let delivered = full / 100 * arrived;
            let told = Round {
                now,
                span,
                delivered,
                lost: full / 100 * lost,
                late: delivered / 100 * late,
                stood: delivered / 100 * stood,
                pressed: delivered / 100 * pressed,
                rtt,
            };
            let (light, weights, weight, smoothed, base, packet) = asked;
            (told, [light, weights, weight, smoothed, base, packet])
        };
        (agreement, rounds.into_iter().map(round).collect())
    })
}

fn judged_as_the_model_judges(_: &Path) {
    trial("judge", |run| {
        let cases = Cases { cases: 256, failure_persistence: None, ..Cases::default() };
        let outcome = TestRunner::new(cases).run(&runs(), |(agreement, told)| {
            let mut model = Rounds::default();
            for (r, [light, weights, weight, smoothed, base, packet]) in told {
                let m = model;
                let mut context = Words::default()
                    .long(&[agreement.rate, agreement.line])
                    .short(&[agreement.queue, agreement.gain, agreement.nominal])
                    .short(&[u32::from(agreement.dedicated)])
                    .long(&[0])
                    .long(&[
                        m.agreed, m.current, m.before, m.until, m.test, m.acked, m.lost, m.slot,
                        m.line, m.last, m.drained,
                    ])
                    .short(&[m.nominal, m.losses, m.reactions, m.undone, m.calm, m.step])
                    .long(&[r.now, r.span, r.delivered, r.lost, r.late, r.stood, r.pressed, r.rtt])
                    .long(&[0, light, weights, weight, 0, smoothed, base, packet, 0])
                    .long(&[weights, 0, 0])
                    .0;
                run(&mut context);
                model.judge(&agreement, &r);
                let held = Rounds {
                    agreed: long(&context, 40),
                    current: long(&context, 48),
                    before: long(&context, 56),
                    until: long(&context, 64),
                    test: long(&context, 72),
                    acked: long(&context, 80),
                    lost: long(&context, 88),
                    slot: long(&context, 96),
                    line: long(&context, 104),
                    last: long(&context, 112),
                    drained: long(&context, 120),
                    nominal: short(&context, 128),
                    losses: short(&context, 132),
                    reactions: short(&context, 136),
                    undone: short(&context, 140),
                    calm: short(&context, 144),
                    step: short(&context, 148),
                };
                prop_assert_eq!(held, model);
                let rate = model.rate(&agreement);
                let share = rounds::share(rate, light, weights, weight);
                let window = rounds::window(&agreement, share, smoothed, base, packet);
                let got = (long(&context, 216), long(&context, 248), long(&context, 280));
                prop_assert_eq!(got, (rate, share, window));
                prop_assert_eq!(long(&context, 296), rounds::first(rate, weights));
                prop_assert_eq!(long(&context, 304), model.known(share));
            }
            Ok(())
        });
        outcome.unwrap();
    });
}

fn filtered_as_the_model_filters(_: &Path) {
    let acks = prop::collection::vec((1_u64..200_000, 1_u64..40, 1_000_u32..400_000), 2..200);
    trial("filter", |run| {
        let cases = Cases { cases: 64, failure_persistence: None, ..Cases::default() };
        let outcome = TestRunner::new(cases).run(&acks, |acks| {
            let mut model = WestwoodPlus::new(&Config {
                algorithm: Algorithm::WestwoodPlus,
                initial_window: 1e6,
                initial_threshold: 1e6,
                counting: Counting::PerAck,
                slow_start: SlowStart::Standard,
                ..Config::default()
            });
            let (mut now, mut delivered, mut state) = (1_000_000_u64, 0_u32, vec![0_u8; 32]);
            for (after, acked, rtt) in acks {
                now += after;
                delivered += acked as u32;
                let mut context = Words(state.clone());
                context = context.long(&[now]).short(&[delivered, rtt, rtt, 1_000_000]).long(&[0]);
                run(&mut context.0);
                state.copy_from_slice(&context.0[..32]);
                model.on_ack(&Ack {
                    now: Time::ZERO + Span::from_micros(now),
                    acked: acked as f64,
                    in_flight: 100.0,
                    rtt: Some(Span::from_micros(rtt.into())),
                    smoothed: Span::from_micros(rtt.into()),
                    limited: true,
                    una: 0,
                    next: 0,
                    recovering: true,
                });
                let seen = model.snapshot();
                let bandwidth = long(&state, 16) as f64 / 1_024.0;
                let expected = seen.bandwidth.unwrap_or_default();
                prop_assert!(
                    (bandwidth - expected).abs() <= 0.02 + expected / 1e6,
                    "{bandwidth} {expected}"
                );
                prop_assert_eq!(u64::from(short(&state, 28)), seen.rtt_min.unwrap().as_micros());
                let mut after = model.clone();
                after.on_loss(Time::ZERO, 1e6);
                let threshold = long(&context.0, 56) as f64;
                let wanted = after.threshold().max(2.0);
                prop_assert!((threshold - wanted).abs() <= 1.01, "{threshold} {wanted}");
            }
            Ok(())
        });
        outcome.unwrap();
    });
}
