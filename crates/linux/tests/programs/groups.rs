//! Connections that hold a rate together, or alone.

use crate::pair::{Pair, options, rate};
use ekiden_linux::bpf::{Control, Group, Loaded, Terms};
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::control::scheduler::Lane;
use ekiden_testkit::wait_for;
use socket2::{SockFilter, SockRef};
use std::os::fd::AsFd;
use std::path::Path;

pub(crate) fn a_rate_is_divided_among_the_busy(_: &Path) {
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
    // a state to wait for: a busy machine keeps one silent for a while, or lowers the rate
    wait_for("two of three that send", || {
        let seen = group.seen().unwrap();
        (seen.members, seen.weights, seen.rate) == (3, 2, 8_000_000)
    });
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
    wait_for("still the old agreement", || is(&one, 1));
    again.agree().unwrap();
    wait_for("half the rate", || is(&one, 2));
    one.close();
    quiet.close();
    wait_for("nobody", || {
        let seen = group.seen().unwrap();
        (seen.members, seen.weights, seen.light) == (0, 0, 0)
    });
}

pub(crate) fn a_group_is_given_back_by_the_last_that_has_it(_: &Path) {
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

pub(crate) fn silent_peers_take_no_share_of_the_rate(_: &Path) {
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

pub(crate) fn a_socket_alone_holds_its_own_rate(_: &Path) {
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
