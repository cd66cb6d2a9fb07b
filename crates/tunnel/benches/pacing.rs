//! How exactly slots are kept and what that costs: two relays in this process on loopback, one bulk flow.
//!
//! `cargo bench -p ekiden-tunnel --bench pacing [-- SECONDS [MBIT]]`; nothing else should run. A gap's error is how
//! much later than its slot a datagram was handed to the kernel. Processor time is that of the thread that
//! sends, of the one that receives, and of the whole process with its client and server, each in milliseconds
//! a second; and of the process for a gigabyte.

use bytes::Bytes;
use ekiden_model::units::{Rate, Span};
use ekiden_tunnel::core::{Limits, Terms};
use ekiden_tunnel::driver::{Incoming, Peers, Settings, TunnelStatus};
use ekiden_tunnel::frame::{Carries, Host, Opening, Target};
use ekiden_tunnel::trust::{Peer, PeerKind, Store, Token, hash, random};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Before anything is counted.
const BEFORE: Duration = Duration::from_secs(2);

struct Pair {
    _folder: tempfile::TempDir,
    near: Peers,
    far: Peers,
    incoming: mpsc::Receiver<Incoming>,
}

/// `far` invites, `near` joins.
fn pair(rate: Rate) -> Done<Pair> {
    let folder = tempfile::tempdir()?;
    let stores = ["near", "far"].map(|name| Store::new(folder.path().join(name)));
    let address = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let secret = random()?;
    let kind = PeerKind::Invited { invitation: hash(&secret).into() };
    let terms = Terms { dedicated: Some(rate), ..Terms::new(rate, rate) };
    stores[1].add(Peer { name: "near".to_owned(), kind, terms })?;
    let fingerprint = stores[1].credentials()?.fingerprint();
    let address_text = address.to_string();
    let token =
        Token { address: address_text, fingerprint, secret, send: rate, receive: rate, made: None };
    stores[0].add(token.peer("far".to_owned()))?;
    let settings = |nth: usize, listen| Settings {
        carrier: ekiden_tunnel::driver::TransportMode::Udp,
        store: stores[nth].clone(),
        listen,
        dscp: [34, 0],
        // as over a network
        limits: Limits { datagram: 1_472, ..Limits::default() },
        threads: 1,
    };
    let (sender, incoming) = mpsc::channel(100);
    let far = Peers::start(settings(1, vec![address]), sender)?;
    let (sender, _) = mpsc::channel(100);
    let near = Peers::start(settings(0, vec![]), sender)?;
    Ok(Pair { _folder: folder, near, far, incoming })
}

/// Processor time so far by thread, in ticks of 10 ms.
fn ticks() -> Done<BTreeMap<String, (String, u64)>> {
    let mut all = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let stat = std::fs::read_to_string(task.path().join("stat"))?;
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let fields: Vec<&str> = stat[close + 2..].split(' ').collect();
        // man 5 proc: utime and stime are fields 14 and 15
        let used = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        let name = stat[open + 1..close].to_owned();
        all.insert(task.file_name().to_string_lossy().into_owned(), (name, used));
    }
    Ok(all)
}

fn micros(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.1}", span.as_nanos() as f64 / 1e3))
}

async fn row(mbit: u64, seconds: u64) -> Done<()> {
    let mut pair = pair(Rate::from_bits_per_second(mbit * 1_000_000))?;
    let target = Target { host: Host::Name("example.org".to_owned()), port: 80 };
    let opening =
        Opening { account: Bytes::new(), hops: 0, target, dscp: None, carries: Carries::Stream };
    let flow = pair.near.open("far", opening, Span::from_secs(10)).await?;
    let incoming = pair.incoming.recv().await.ok_or("no flow came")?;
    incoming.flow.accept();
    let mut client = flow.into_stream(|_, _, _| ());
    let mut server = incoming.flow.into_stream(|_, _, _| ());
    let writer = tokio::spawn(async move {
        let bytes = vec![7; 1 << 16];
        while server.write_all(&bytes).await.is_ok() {}
    });
    let (mut buffer, mut came) = (vec![0; 1 << 18], 0_u64);
    let begun = Instant::now();
    let mut counted = None;
    while begun.elapsed() < BEFORE + Duration::from_secs(seconds) {
        came += client.read(&mut buffer).await? as u64;
        if counted.is_none() && begun.elapsed() > BEFORE {
            counted = Some((Instant::now(), came, ticks()?));
        }
    }
    let (since, before, then) = counted.ok_or("it was over too soon")?;
    let (took, bytes) = (since.elapsed().as_secs_f64(), (came - before) as f64);
    let mut threads = Vec::new();
    let mut all = 0.0;
    for (id, (name, now)) in ticks()? {
        let used = (now - then.get(&id).map_or(0, |(_, used)| *used)) as f64 * 10.0 / took;
        all += used;
        if name == "tunnel" {
            threads.push(used);
        }
    }
    // the near relay's threads began last
    let receiving = threads.pop().unwrap_or_default();
    let sending: f64 = threads.iter().sum();
    let status: Vec<TunnelStatus> = pair.far.status();
    let pacing = &status.first().ok_or("there is no tunnel")?.pacing;
    println!(
        "{:>12} {:>10.1} {:>9} {:>9} {:>9} {:>9.0} {:>10.0} {:>9.0} {:>10.2}",
        format!("{mbit} Mbit/s"),
        bytes * 8e-6 / took,
        pacing.count(),
        micros(pacing.percentile(50)),
        micros(pacing.percentile(99)),
        sending,
        receiving,
        all,
        all / 1e3 * took / (bytes / 1e9),
    );
    writer.abort();
    pair.near.close().await;
    pair.far.close().await;
    Ok(())
}

fn main() -> Done<()> {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse().ok());
    let seconds = numbers.next().unwrap_or(10);
    let rates = numbers.next().map_or_else(|| vec![4, 20, 200, 1_000], |rate| vec![rate]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    println!(
        "{:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10}",
        "rate",
        "goodput",
        "slots",
        "p50 µs",
        "p99 µs",
        "sending",
        "receiving",
        "all ms/s",
        "CPU-s/GB"
    );
    for mbit in rates {
        runtime.block_on(row(mbit, seconds))?;
    }
    Ok(())
}
