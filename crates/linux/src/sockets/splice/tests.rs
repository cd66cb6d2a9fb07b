#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

fn pair() -> (TcpStream, TcpStream) {
    let (client, server) = crate::testing::pair();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Fill(usize),
    Drain(bool),
    Read(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..200_000_usize).prop_map(Step::Write),
        (1..5_usize).prop_map(Step::Write),
        (1..100_000_usize).prop_map(Step::Fill),
        any::<bool>().prop_map(Step::Drain),
        (1..200_000_usize).prop_map(Step::Read),
    ]
}

/// `None`: would block.
fn ready<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

struct SpliceRelay {
    source: TcpStream,
    left: TcpStream,
    right: TcpStream,
    sink: TcpStream,
    pipe: Pipe,
    next: u64,
    ended: bool,
    sent: (u64, DefaultHasher),
    received: (u64, DefaultHasher),
}

impl SpliceRelay {
    fn new(pool: &PipePool) -> Self {
        let ((source, left), (right, sink)) = (pair(), pair());
        let pipe = pool.take().unwrap();
        let (sent, received) = Default::default();
        Self { source, left, right, sink, pipe, next: 1, ended: false, sent, received }
    }

    fn write(&mut self, length: usize) {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (self.next >> 56) as u8
            })
            .collect();
        let written = ready(self.source.write(&bytes)).unwrap_or(0);
        self.sent.0 += written as u64;
        bytes[..written].iter().for_each(|byte| self.sent.1.write_u8(*byte));
    }

    fn fill(&mut self, max: usize) {
        let moved = ready(self.pipe.fill(self.left.as_fd(), max));
        self.ended |= moved == Some(0);
    }

    fn drain(&mut self, more: bool) {
        ready(self.pipe.drain(self.right.as_fd(), more));
    }

    fn read(&mut self, max: usize) -> bool {
        let mut buffer = vec![0; max];
        let read = ready(self.sink.read(&mut buffer));
        let bytes = &buffer[..read.unwrap_or(0)];
        self.received.0 += bytes.len() as u64;
        bytes.iter().for_each(|byte| self.received.1.write_u8(*byte));
        read == Some(0)
    }

    fn finish(mut self) -> bool {
        self.source.shutdown(Shutdown::Write).unwrap();
        let mut passed_on = false;
        while !self.read(65_536) {
            self.fill(65_536);
            self.drain(false);
            if self.ended && self.pipe.is_empty() && !passed_on {
                self.right.shutdown(Shutdown::Write).unwrap();
                passed_on = true;
            }
        }
        self.sent.0 == self.received.0 && self.sent.1.finish() == self.received.1.finish()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_arrive_whole_and_in_order(steps in prop::collection::vec(step(), 1..120)) {
        let pool = PipePool::new(1, 65_536);
        let mut relay = SpliceRelay::new(&pool);
        for step in steps {
            match step {
                Step::Write(n) => relay.write(n),
                Step::Fill(n) => relay.fill(n),
                Step::Drain(more) => relay.drain(more),
                Step::Read(n) => { relay.read(n); }
            }
        }
        prop_assert!(relay.finish());
        prop_assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_pool_keeps_its_budget(limit in 0..6_u32, turns in prop::collection::vec(any::<bool>(), 0..60)) {
        let pool = PipePool::new(limit, 4096);
        let (mut held, mut peak) = (vec![], 0);
        for take in turns {
            if take {
                let pipe = pool.take();
                prop_assert_eq!(pipe.is_some(), held.len() < limit as usize);
                held.extend(pipe);
            } else {
                held.pop();
            }
            peak = peak.max(held.len() as u32);
            prop_assert_eq!(pool.used() as usize, held.len());
            prop_assert!(pool.used() <= limit && pool.idle() <= limit as usize);
        }
        prop_assert_eq!(pool.peak(), peak);
        drop(held);
        prop_assert_eq!(pool.used(), 0);
    }
}

#[test]
fn would_block_on_an_empty_pipe_is_the_sockets_doing() {
    let pool = PipePool::new(1, 65_536);
    let mut pipe = pool.take().unwrap();
    let (mut client, server) = pair();
    let error = pipe.fill(server.as_fd(), 1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(pipe.is_empty());
    // and a full pipe says the same while the socket has more
    while ready(client.write(&[1; 65_536])).is_some() {}
    while ready(pipe.fill(server.as_fd(), usize::MAX >> 1)).is_some() {}
    assert!(!pipe.is_empty());
    let mut one = [0];
    assert_eq!(server.peek(&mut one).unwrap(), 1);
}

#[test]
fn the_end_of_a_direction_is_zero_and_a_reset_an_error() {
    let pool = PipePool::new(1, 65_536);
    let mut pipe = pool.take().unwrap();
    let (client, server) = pair();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pipe.fill(server.as_fd(), 1000).unwrap(), 0);
    let (client, server) = pair();
    crate::sockets::socket::abort(client.as_fd()).unwrap();
    drop(client);
    let error = pipe.fill(server.as_fd(), 1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_pipe_with_bytes_in_it_is_not_reused() {
    let pool = PipePool::new(4, 65_536);
    let mut pipe = pool.take().unwrap();
    let (mut client, server) = pair();
    client.write_all(b"secret").unwrap();
    assert_eq!(pipe.fill(server.as_fd(), 1000).unwrap(), 6);
    drop(pipe);
    assert_eq!((pool.used(), pool.idle()), (0, 0));
    drop(pool.take());
    assert_eq!((pool.used(), pool.idle()), (0, 1));
}

#[test]
fn descriptors_are_given_back() {
    // counted by name, since other tests open theirs at the same time
    let open = |pool: &PipePool| {
        let pipes: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let raw: Vec<_> = pipes
            .iter()
            .flat_map(|p| [p.ends().read.as_raw_fd(), p.ends().write.as_raw_fd()])
            .collect();
        let names = |raw: &[i32]| -> Vec<_> {
            raw.iter().map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect()
        };
        let before = names(&raw);
        assert!(before.iter().all(Option::is_some));
        drop(pipes);
        let after = names(&raw);
        before.iter().zip(&after).filter(|(b, a)| b == a).count()
    };
    let pool = PipePool::new(100, 4096);
    assert_eq!(open(&pool), 2 * IDLE_KEPT);
    assert_eq!(pool.idle(), IDLE_KEPT);
    assert_eq!(open(&PipePool::new(10, 4096)), 20);
}

#[test]
fn the_granted_capacity_is_told() {
    assert_eq!(PipePool::new(1, 262_144).take().unwrap().capacity(), 262_144);
    assert_eq!(PipePool::new(1, 1).take().unwrap().capacity(), 4096);
}
