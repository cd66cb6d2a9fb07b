use super::*;
use crate::observe::log_throttle::counting::said;
use crate::resources::ShareUsed;
use crate::settings::Settings;
use ekiden_linux::host::clock;
use ekiden_model::units::Bytes;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::task::Poll;
use tracing::Level;

const KIB: usize = 1024;
const LARGE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SMALL: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

fn resources(memory: u64) -> Arc<Resources> {
    let mut settings = Settings::default();
    settings.budgets.sessions = Bytes::new(memory);
    Resources::new(&settings, false).0
}

fn client(resources: &Arc<Resources>, from: IpAddr) -> AdmissionPermit {
    let place = locked(&resources.state).take_place(clock::now(), from.into());
    AdmissionPermit::counted(resources, place, false)
}

/// All of 128 KiB but what is left to newcomers, each connection a KiB.
async fn fill(
    resources: &Arc<Resources>,
    from: impl Fn(u8) -> IpAddr,
) -> Vec<(AdmissionPermit, HeldMemory)> {
    let mut held = Vec::new();
    for n in 0..126 {
        let client = client(resources, from(n));
        let memory = client.hold(KIB).await.unwrap();
        held.push((client, memory));
    }
    held
}

/// What it gives without a wait.
async fn at_once<T>(mut waited: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match poll_fn(|context| Poll::Ready(waited.as_mut().poll(context))).await {
        Poll::Ready(given) => Some(given),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn newcomers_wait_for_no_memory_while_one_address_holds_it() {
    let resources = resources(128 * KIB as u64);
    let held = fill(&resources, |_| LARGE).await;
    let late = client(&resources, LARGE);
    let mut waits = pin!(late.hold(KIB));
    assert!(at_once(waits.as_mut()).await.is_none(), "the rest is not for this address");
    // and nobody waits behind it
    let mut newcomers = Vec::new();
    for n in 1..=2 {
        let client = client(&resources, SMALL);
        let memory = at_once(pin!(client.hold(KIB))).await.flatten();
        newcomers.push((client, memory.unwrap_or_else(|| panic!("newcomer {n}"))));
    }
    assert_eq!(resources.memory.used(), 128 * KIB as u64);
    assert!(late.is_large_while_short() && !newcomers[0].0.is_large_while_short());
    drop(held);
    assert!(waits.await.is_some());
    assert!(!late.is_large_while_short(), "there is enough");
}

#[tokio::test]
async fn nobody_is_closed_while_half_of_what_newcomers_may_take_is_left() {
    // 1,024 KiB of it for newcomers
    let resources = resources(64 * 1024 * KIB as u64);
    let large: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
    let _large = large[0].hold(61 * 1024 * KIB).await.unwrap();
    assert!(!large[0].is_large_while_short(), "3 MiB are left");
    let _more = large[1].hold(2 * 1024 * KIB).await.unwrap();
    let newcomer = client(&resources, SMALL);
    let mut held = newcomer.hold(512 * KIB).await.unwrap();
    assert!(large[0].is_large_while_short() && !newcomer.is_large_while_short());
    let evicted = || large.iter().any(|client| client.place.evicted.load(SeqCst));
    assert!(!evicted());
    assert!(held.resize(513 * KIB).await);
    assert!(evicted());
}

#[tokio::test]
async fn waiting_for_memory_ends_when_it_is_given_back() {
    let resources = resources(64 * KIB as u64);
    let first = client(&resources, LARGE);
    let memory = first.hold(63 * KIB).await.unwrap();
    let second = client(&resources, LARGE);
    let mut waits = pin!(second.hold(32 * KIB));
    assert!(at_once(waits.as_mut()).await.is_none());
    assert_eq!(resources.memory_waiting(), 1);
    assert!(first.place.evicted.load(SeqCst), "it holds the most, and nothing is served");
    drop(memory);
    assert!(at_once(waits.as_mut()).await.flatten().is_some(), "no time passed");
    assert_eq!(resources.memory_waiting(), 0);
    assert_eq!(resources.memory_refused.times.load(Relaxed), 0);
}

#[tokio::test]
async fn newcomers_are_closed_for_nobody_larger() {
    let resources = resources(128 * KIB as u64);
    let held = fill(&resources, |_| LARGE).await;
    held.iter().for_each(|(client, _)| {
        locked(&resources.state).sources.on_busy(*client.place.id.get().unwrap());
    });
    let newcomer = client(&resources, SMALL);
    let _memory = at_once(pin!(newcomer.hold(KIB))).await.flatten().unwrap();
    // all that could give anything back is the newcomer
    assert!(client(&resources, LARGE).hold(KIB).await.is_none());
    assert!(client(&resources, LARGE).hold_apart(KIB).await.is_none(), "no newcomer either");
    let other = client(&resources, SMALL);
    let _other = at_once(pin!(other.hold(KIB))).await.flatten().unwrap();
    assert!(!newcomer.place.evicted.load(SeqCst), "there was enough");
    let third = client(&resources, SMALL);
    let mut waits = pin!(third.hold(KIB));
    assert!(at_once(waits.as_mut()).await.is_none());
    assert!(newcomer.place.evicted.load(SeqCst), "the longest silent of its like");
}

#[tokio::test]
async fn served_requests_of_one_address_leave_memory_to_another() {
    let resources = resources(128 * KIB as u64);
    let large: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
    let _first = large[0].hold(60 * KIB).await.unwrap();
    let _silent = large[1].hold(50 * KIB).await.unwrap();
    large[0].serve().unwrap();
    // what is silent could be had back
    large[2].serve().unwrap();
    large[1].serve().unwrap();
    // at once, although all silent connections are looked at ten times a second
    let more = client(&resources, LARGE);
    assert_eq!(more.serve(), Err(ShareUsed::Memory));
    let newcomer = client(&resources, SMALL);
    let _memory = newcomer.hold(KIB).await.unwrap();
    newcomer.serve().unwrap();
    // nor does what is served hold more of it
    assert!(large[0].hold(KIB).await.is_none());
    assert!(more.hold(KIB).await.is_some(), "that can be had back");
    large[1].set_silent();
    tokio::time::sleep(Duration::from_millis(101)).await;
    more.serve().unwrap();
    assert_eq!(locked(&resources.state).counts.share_refused, 2);
}

#[tokio::test]
async fn served_requests_of_many_addresses_leave_memory_to_another() {
    let resources = resources(16 * 1024 * KIB as u64);
    let mut held = Vec::new();
    for n in 0..80 {
        let address = Ipv4Addr::new(203, 0, 113, n).into();
        loop {
            let client = client(&resources, address);
            let memory = client.hold(4 * KIB).await.unwrap();
            if client.serve().is_err() {
                break;
            }
            held.push((client, memory));
        }
    }
    assert!(resources.memory.left() > 16 * 1024 * KIB as u64 / 50, "{}", resources.memory.left());
    let newcomer = client(&resources, SMALL);
    let _memory = at_once(pin!(newcomer.hold(64 * KIB))).await.flatten().unwrap();
    newcomer.serve().unwrap();
}

#[tokio::test]
async fn connections_to_servers_of_one_address_leave_memory_to_another() {
    let resources = resources(128 * KIB as u64);
    let large = client(&resources, LARGE);
    large.serve().unwrap();
    let mut held = Vec::new();
    while let Some(memory) = large.hold_apart(KIB).await {
        held.push(memory);
    }
    assert_eq!(held.len(), 97, "three quarters and one more");
    let newcomer = client(&resources, SMALL);
    newcomer.serve().unwrap();
    let _memory = newcomer.hold_apart(KIB).await.unwrap();
    // they outlive their client, and its address has them in its share however many others came
    drop(large);
    (0..200).for_each(|n| drop(client(&resources, Ipv4Addr::new(203, 0, 113, n).into())));
    let again = client(&resources, LARGE);
    again.serve().unwrap();
    assert!(again.hold_apart(KIB).await.is_none());
    again.set_logged_in();
    assert!(again.hold_apart(KIB).await.is_some(), "its account's limits are for it");
}

#[test]
fn refused_memory_is_in_the_log_with_the_budget_that_is_used_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let resources = resources(128 * KIB as u64);
    let refuse = async {
        let (large, newcomer) = (client(&resources, LARGE), client(&resources, SMALL));
        large.serve().unwrap();
        let mut held = Vec::new();
        while let Some(memory) = large.hold_apart(KIB).await {
            held.push(memory);
        }
        for _ in 0..3 {
            assert!(large.hold_apart(KIB).await.is_none());
            assert!(newcomer.hold(32 * KIB).await.is_none());
        }
        drop(held);
    };
    let lines = said(Level::WARN, || runtime.block_on(refuse));
    let parts: [&[&str]; 2] = [
        &["no more memory for 192.0.2.1: ", "75 % of budgets.sessions, 128 KiB,"],
        &["no memory for 32 KiB of ", ": 75 % of budgets.sessions, 128 KiB,"],
    ];
    assert_eq!(lines.len(), parts.len(), "{lines:#?}");
    for (line, parts) in lines.iter().zip(parts) {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert_eq!(resources.memory_refused.times.load(Relaxed), 3);
    assert_eq!(locked(&resources.state).counts.share_refused, 4);
}

#[tokio::test]
async fn parts_of_memory_are_given_back_one_by_one() {
    let resources = resources(64 * KIB as u64);
    let client = client(&resources, SMALL);
    let mut whole = client.hold(10 * KIB).await.unwrap();
    let part = whole.split(4 * KIB);
    let held = || (resources.memory.used(), client.place.held());
    assert_eq!(held(), (10 * KIB as u64, 10 * KIB as u64));
    drop(whole);
    assert_eq!(held(), (4 * KIB as u64, 4 * KIB as u64));
    drop(part);
    assert_eq!(held(), (0, 0));
}

#[tokio::test]
async fn many_sources_of_one_connection_shut_out_none_of_three() {
    let resources = resources(128 * KIB as u64);
    let address = |n| Ipv4Addr::new(203, 0, 113, n).into();
    let mut held = fill(&resources, address).await;
    let browser: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
    let mut waits = pin!(browser[0].hold(KIB));
    assert!(at_once(waits.as_mut()).await.is_none());
    held.retain(|(client, _)| !client.place.evicted.load(SeqCst));
    assert!(held.len() < 126, "one of them gives it back");
    assert!(at_once(waits.as_mut()).await.flatten().is_some());
}

#[tokio::test]
async fn memory_of_closed_connections_that_do_not_end_is_not_waited_for() {
    let resources = resources(128 * KIB as u64);
    let held = fill(&resources, |_| LARGE).await;
    let closed = || held.iter().filter(|(one, _)| one.place.evicted.load(SeqCst)).count();
    let newcomer = client(&resources, SMALL);
    let _all = newcomer.hold(2 * KIB).await.unwrap();
    // those that are closed for it give nothing back
    let mut waits = pin!(newcomer.hold(KIB));
    assert!(at_once(waits.as_mut()).await.is_none());
    let first = closed();
    assert!(first < held.len());
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(at_once(waits.as_mut()).await.is_none());
    assert!(closed() > first, "others are closed in their place");
}
