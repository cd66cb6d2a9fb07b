//! Every order in which a tunnel can end, compared with a connection without a relay between.
//!
//! Who ends it × how × when, × splice or copy, × the door, × one relay or three in a row. Both ends
//! must see what they would have seen of each other directly: the same bytes and the same kind of end.
use crate::common::ends::{
    End, EndReport, FROM_ENDER, FROM_OTHER, HOWS, How, LAST_WORDS, Settled, WHENS, When, ender,
    other,
};
use crate::common::{
    LONG, Row, TUNNEL_PROTOCOLS, TunnelProtocol, connect, descriptors, listener, settings,
    wait_until,
};
use ekiden_proxy::settings::{CopyMode, UpstreamProtocol};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Client,
    Server,
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
struct Order {
    who: Who,
    how: How,
    when: When,
}

fn orders() -> Vec<Order> {
    let mut orders = Vec::new();
    for who in [Who::Client, Who::Server] {
        for how in HOWS {
            orders.extend(WHENS.map(|when| Order { who, how, when }));
        }
    }
    orders
}

/// Relays in a row, and how they ask each other.
const ROWS: [(&str, usize, UpstreamProtocol); 5] = [
    ("1", 1, UpstreamProtocol::Http),
    ("3 by HTTP", 3, UpstreamProtocol::Http),
    ("3 by SOCKS5", 3, UpstreamProtocol::Socks5),
    ("3 by tunnel", 3, UpstreamProtocol::Tunnel),
    ("3 by HTTP within TLS", 3, UpstreamProtocol::Https),
];

/// What the ender and the other end saw, through `relay` or directly.
fn play(order: Order, relay: Option<(TunnelProtocol, SocketAddr)>) -> (EndReport, EndReport) {
    let Order { who, how, when } = order;
    let (listener, address) = listener();
    let (for_client, for_server) = Settled::pair();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let stream = match relay {
                Some((protocol, relay)) => protocol.open(relay, address),
                None => connect(address),
            };
            match who {
                Who::Client => ender(stream, how, when, &for_client),
                Who::Server => other(stream, how, when, &for_client),
            }
        });
        let server = scope.spawn(move || {
            let stream = listener.accept().unwrap().0;
            match who {
                Who::Client => other(stream, how, when, &for_server),
                Who::Server => ender(stream, how, when, &for_server),
            }
        });
        let (client, server) = (client.join(), server.join());
        let (Ok(client), Ok(server)) = (client, server) else {
            panic!("{order:?} through {relay:?}: an end did not come through");
        };
        match who {
            Who::Client => (client, server),
            Who::Server => (server, client),
        }
    })
}

/// Checks what both ends must see in any case, relay or not, and says it in words.
fn judge(order: Order, seen: &(EndReport, EndReport)) -> String {
    let (ender, other) = seen;
    let half_read = FROM_OTHER.len() / 2;
    // the ender: what the other sent before, and after a half-close all the rest
    let to_ender: Vec<u8> = match (order.how, order.when) {
        (How::Half, When::After) => [&FROM_OTHER[..], &LAST_WORDS[..]].concat(),
        (How::Half, _) | (_, When::After) => FROM_OTHER.to_vec(),
        (_, When::Before) => Vec::new(),
        (_, When::During) => FROM_OTHER[..half_read].to_vec(),
    };
    assert!(ender.bytes == to_ender, "{order:?}: the ender got other bytes");
    assert_eq!(ender.end, (order.how == How::Half).then_some(End::Eof), "{order:?}: ender");
    // the other: everything, but after a reset only what had been read before is sure
    let to_other: &[u8] = if order.when == When::Before { &[] } else { &FROM_ENDER };
    let got = other.bytes.len();
    match (order.how, order.when) {
        (How::Rst, When::During) => {
            assert!(to_other.starts_with(&other.bytes), "{order:?}: not a prefix");
            assert!(got >= to_other.len() / 2, "{order:?}: {got} bytes of what had arrived");
        }
        _ => assert!(other.bytes == to_other, "{order:?}: the other got {got} bytes, or others"),
    }
    let end = if order.how == How::Rst { End::Reset } else { End::Eof };
    assert_eq!(other.end, Some(end), "{order:?}: the other");
    assert_ne!(other.refused, Some(false), "{order:?}: writing to a closed end must fail");
    let exact = if (order.how, order.when) == (How::Rst, When::During) { ">=150000" } else { "" };
    let bytes = if exact.is_empty() { got.to_string() } else { exact.to_owned() };
    let refused = if other.refused.is_some() { ", then refused" } else { "" };
    let ended = if order.how == How::Half { ", EOF" } else { "" };
    let other = format!("{bytes:>8}, {end:?}{refused}");
    format!("{other:<28} | {:>6}{ended:<5}", ender.bytes.len())
}

/// All orders through one row of relays with one movement, by every door; what went wrong, by cell.
fn through(movement: CopyMode, (_, n, protocol): (&str, usize, UpstreamProtocol)) -> Vec<String> {
    let before = descriptors();
    let row = Row::start(n, protocol, &settings(movement));
    let front = row.front();
    let mut cells = Vec::new();
    for order in orders() {
        cells.extend(TUNNEL_PROTOCOLS.map(|protocol| (order, protocol)));
    }
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some((order, protocol)) = cells.get(next.fetch_add(1, Relaxed)) {
                    let cell = std::panic::catch_unwind(|| {
                        judge(*order, &play(*order, Some((*protocol, front))))
                    });
                    if cell.is_err() {
                        wrong.lock().unwrap().push(format!("{order:?} {protocol:?}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    // what failed may well have left something
    if wrong.is_empty() {
        row.wait_until_empty();
        drop(row);
        let left = || descriptors().saturating_sub(before);
        wait_until(|| left() == 0, || format!("{} descriptors left", left()));
    }
    wrong
}

#[test]
fn every_order_is_as_without_a_relay() {
    let _alone = crate::alone();
    // once for what the test process itself opens and keeps
    drop(Row::single(settings(CopyMode::Auto)));
    let mut lines = BTreeMap::new();
    for (nth, order) in orders().into_iter().enumerate() {
        let said = judge(order, &play(order, None));
        let Order { who, how, when } = order;
        lines.insert(nth, (format!("{who:?} {how:?} {when:?}"), said));
    }
    let mut columns = Vec::new();
    let mut wrong = Vec::new();
    for (name, movement) in [("splice", CopyMode::Splice), ("copy", CopyMode::Copy)] {
        for row in ROWS {
            let failed = through(movement, row);
            wrong.extend(failed.iter().map(|cell| format!("{name}, {} in a row: {cell}", row.0)));
            columns.push((format!("{name}, {} in a row", row.0), failed));
        }
    }
    let mut table = String::from("one = for each of: connect, socks5, socks4a\n\n");
    for (nth, (name, _)) in columns.iter().enumerate() {
        writeln!(table, "column {}: {name}", nth + 1).unwrap();
    }
    writeln!(
        table,
        "\n{:<20}| {:<28} | {:<11} | 1   2   3   4   5   6   7   8   9   10",
        "who, how, when", "the other end sees", "ender sees"
    )
    .unwrap();
    for (nth, order) in orders().into_iter().enumerate() {
        let (title, said) = &lines[&nth];
        write!(table, "{title:<20}| {said} |").unwrap();
        for (_, failed) in &columns {
            table.push(' ');
            for protocol in TUNNEL_PROTOCOLS {
                let differs = failed.contains(&format!("{order:?} {protocol:?}"));
                table.push(if differs { 'X' } else { '=' });
            }
        }
        table.push('\n');
    }
    println!("{table}");
    println!("{} cells", orders().len() * TUNNEL_PROTOCOLS.len() * columns.len());
    assert!(wrong.is_empty(), "not as without a relay (within {LONG:?}):\n{}", wrong.join("\n"));
    insta::assert_snapshot!(table);
}
