//! One run, from empty namespaces to its summary.

mod machine;
mod progress;

use self::machine::{machine, version};
use self::progress::Progress;
use crate::Arguments;
use crate::books::balance::{Balance, may_miss};
use crate::doors::{self, CLIENTS, Clients};
use crate::exchange::LARGEST;
use crate::faults::{Fault, draw, quiet_from};
use crate::inject::{self, Happened};
use crate::laws::{DOORS, Door, LEGS, QuotaUse, deaf, explains, undisturbed};
use crate::ledger::{Datagrams, Ledger, Side};
use crate::network;
use crate::origin::{self, AlertReceiver, Names};
use crate::relays::{PORT, Relays, STATE};
use crate::summary::{Row, Summary, alike};
use crate::watch::{Lateness, Watch};
use ekiden_emulator::topology::{Host, Topology};
use ekiden_linux::namespaces::sandbox::Sandbox;
use ekiden_model::units::Span;
use ekiden_testbed::{limits, peers};
use ekiden_testkit::Postgres;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// From making the links to the beginning of the traffic: all is set up by then.
const LEAD: Duration = Duration::from_secs(25);
/// The last transfers may take so long, and as long as the largest takes at its rate.
const LAST: Duration = Duration::from_secs(180);
/// The links hand packets over so often: else they take a third of the processors.
const STEP: Span = Span::from_millis(1);
/// Between two looks.
const SECOND: Duration = Duration::from_secs(1);
/// What a relay still keeps of its clients is gone by then, also where one end of a connection is silent: two minutes.
const GONE: Duration = Duration::from_secs(150);
/// Descriptors that clients and servers need, and some.
const DESCRIPTORS: u64 = 8_192;
/// Breaks that a fault explains are kept one by one up to here: others like them follow.
const EXPLAINED: usize = 40;
/// Clients move bytes for half of the time: their two streams differ in length, and connecting takes time.
const BUSY: f64 = 0.5;
/// Doors that move as much as they may.
const BULK: u64 = 5;

/// Runs and prints; whether all held.
pub(crate) fn run(arguments: &Arguments, sandbox: &Sandbox) -> Result<bool, Error> {
    if sandbox.user_namespace {
        return Err("root is needed: PostgreSQL runs as another user, and state has disks".into());
    }
    let binary = arguments.ekiden.clone().or_else(peers::ekiden::binary);
    let binary = binary.ok_or("there is no ekiden: build it, or name it with --ekiden")?;
    let binary = binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
    let machine = machine();
    // what the run writes vanishes with it
    let temporary = std::env::temp_dir();
    for path in
        [Some(&binary), arguments.json.as_ref(), arguments.logs.as_ref()].into_iter().flatten()
    {
        if std::path::absolute(path)?.starts_with(&temporary) {
            let (path, folder) = (path.display(), temporary.display());
            return Err(
                format!("{path}: the run has a {folder} of its own; take another place").into()
            );
        }
    }
    sandbox.memory(&temporary)?;
    if limits::raise_descriptors(DESCRIPTORS) < DESCRIPTORS / 2 {
        return Err("too few descriptors: ulimit -n 8192".into());
    }
    let length = Duration::try_from_secs_f64(arguments.hours * 3_600.0)?;
    let every = Duration::from_nanos(arguments.every.as_nanos());
    let faults = draw(arguments.seed, length, every);
    let mut stage = Stage::set(arguments, sandbox, &binary, &faults, length)?;
    let error = stage.play(&faults, length);
    let mut summary = stage.close(arguments, machine, length, &faults)?;
    (summary.version, summary.binary) = (version(&binary), binary.display().to_string());
    summary.failures.extend(error);
    summary.judge();
    print!("{}", summary.text());
    if let Some(json) = &arguments.json {
        std::fs::write(json, serde_json::to_string_pretty(&summary)? + "\n")?;
    }
    Ok(summary.holds)
}

/// Everything that runs.
struct Stage {
    begun: Instant,
    ledger: Arc<Ledger>,
    happened: Happened,
    relays: Relays,
    database: Postgres,
    names: Arc<Names>,
    alerts: Arc<AlertReceiver>,
    watches: [Watch; 2],
    /// Descriptors of the relays before the traffic.
    descriptors: [u64; 2],
    lateness: Lateness,
    clients: Arc<Clients>,
    /// How long the last transfers may take.
    last: Duration,
    seed: u64,
    logs: Option<PathBuf>,
    /// The certificate, which is read at each start.
    _folder: TempDir,
    // the runtimes end before the links
    on_clients: Runtime,
    _on_servers: Runtime,
    _network: Topology,
}

impl Stage {
    fn set(
        arguments: &Arguments,
        sandbox: &Sandbox,
        binary: &Path,
        faults: &[Fault],
        length: Duration,
    ) -> Result<Self, Error> {
        eprintln!("soak: setting up, {} s", LEAD.as_secs());
        let Some(database) = Postgres::begin() else {
            return Err("PostgreSQL is not installed: scripts/peers.sh installs it".into());
        };
        let plan = network::plan(arguments.seed, faults, LEAD);
        let network = Topology::build_in_steps(&plan, STEP)?;
        let begun = Instant::now() + LEAD;
        let rate = (arguments.rate.as_bytes_per_second() as f64 / BUSY) as u64
            / (BULK * CLIENTS * 2 * LEGS.len() as u64);
        let last = LAST + longest(rate);
        let ledger = Ledger::new(begun, length + last);
        let folder = tempfile::tempdir()?;
        let quota = doors::quota(length);
        let small = |at: &Path| sandbox.small_memory(at, STATE);
        let (mut relays, certificate) =
            Relays::set_up(binary, &network, database.address(), folder.path(), quota, small)?;
        let servers = network.host(network::SERVERS).ok_or("there is no host of servers")?;
        let on_servers = runtime(servers)?;
        let (address, counts) = (servers.address(), Arc::clone(&ledger));
        let serve = async move {
            origin::start(address, &counts).await?;
            Ok::<_, std::io::Error>((
                Names::start(address).await?,
                AlertReceiver::start(address).await?,
            ))
        };
        let (names, alerts) = on_servers.block_on(on_servers.spawn(serve))??;
        relays.start()?;
        let near = network.host(network::NEAR).ok_or("there is no near relay")?;
        let at = |name| network.host(name).map(Host::address).ok_or("there are no clients");
        let clients = Arc::new(Clients {
            ledger: Arc::clone(&ledger),
            relay: (near.address(), PORT).into(),
            relay_v6: relays.address_v6().map(|v6| (v6, PORT).into()),
            proxy: at(network::CLIENTS)?,
            servers: address,
            tls: trusting(certificate)?,
            end: begun + length,
            rate,
            quota,
        });
        let on_clients = runtime(network.host(network::CLIENTS).ok_or("there are no clients")?)?;
        let watch = |relay: &crate::relays::Relay| {
            Watch::new(relay.name, relay.pid(), Arc::clone(&relay.home))
        };
        let watches = [watch(&relays.near), watch(&relays.far)];
        let left = begun.checked_duration_since(Instant::now());
        thread::sleep(left.ok_or("setting up took too long: is the machine busy?")?);
        let [near, far] = watches.each_ref().map(Watch::descriptors);
        let descriptors = near.zip(far).ok_or("a relay ended before the traffic")?.into();
        Ok(Self {
            begun,
            ledger,
            happened: Happened::default(),
            relays,
            database,
            names,
            alerts,
            watches,
            descriptors,
            lateness: Lateness::default(),
            clients,
            last,
            seed: arguments.seed,
            logs: arguments.logs.clone(),
            _folder: folder,
            on_clients,
            _on_servers: on_servers,
            _network: network,
        })
    }

    /// Traffic and faults; what went wrong with the latter.
    fn play(&mut self, faults: &[Fault], length: Duration) -> Vec<String> {
        let (clients, seed) = (Arc::clone(&self.clients), self.seed);
        let begin = async move { doors::start(&clients, seed) };
        let mut running = match self.on_clients.block_on(self.on_clients.spawn(begin)) {
            Ok(running) => running,
            Err(error) => return vec![format!("the clients: {error}")],
        };
        let (begun, ledger, happened) = (self.begun, &self.ledger, &self.happened);
        let (servers, near) = ((&*self.names, &*self.alerts), Arc::clone(&self.relays.near.home));
        let (relays, database, watches) = (&mut self.relays, &mut self.database, &mut self.watches);
        let lateness = &mut self.lateness;
        let mut failures = Vec::new();
        thread::scope(|scope| {
            let clock = (begun, &**ledger);
            let lanes = [
                scope.spawn(move || {
                    inject::network(faults, clock, servers, &near, happened);
                    Ok(())
                }),
                scope.spawn(move || inject::machines(faults, clock, relays, database, happened)),
            ];
            let mut shown = Progress::new(length);
            while ledger.now() < length && !happened.is_stopped() {
                thread::sleep(SECOND);
                lateness.on_look(ledger.now());
                watches.iter_mut().for_each(|watch| watch.look(ledger));
                shown.show(ledger, happened);
            }
            happened.stop();
            shown.end();
            for lane in lanes {
                match lane.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => failures.push(error.to_string()),
                    Err(_) => failures.push("a relay did not recover, see above".to_owned()),
                }
            }
        });
        let wait = self.last;
        let last = self
            .on_clients
            .block_on(async { tokio::time::timeout(wait, all(&mut running, &mut failures)).await });
        if last.is_err() {
            failures.push(format!("transfers were not over {} s after the end", wait.as_secs()));
        }
        failures
    }

    /// Stops the relays and reads the books.
    fn close(
        mut self,
        arguments: &Arguments,
        machine: String,
        length: Duration,
        planned: &[Fault],
    ) -> Result<Summary, Error> {
        let mut failures = Vec::new();
        failures.extend(self.relays.near.ended());
        failures.extend(self.relays.far.ended());
        // all faults are over: whoever was away is reached again
        if let Err(error) = self.relays.try_alerts() {
            failures.push(format!("the receiver of alerts was not reached: {error}"));
        }
        for wrong in self.alerts.wrong() {
            failures.push(format!("a message to the receiver of alerts is none: {wrong}"));
        }
        if let Some(left) = self.relays.settle() {
            failures
                .push(format!("the near relay has connections of clients that are gone: {left}"));
        }
        failures.extend(self.left_open());
        failures.extend(self.happened.slow());
        // a relay that ended by itself says nothing, and the run has a summary all the same
        let counted = self.relays.counted();
        self.relays.near.stop();
        self.relays.far.stop();
        let usage = self.relays.usage()?;
        let used = usage.iter().map(|(_, up, down)| [*up, *down]).collect();
        match counted {
            Ok(counted) => {
                self.happened.books().on_end(&DOORS.map(Door::name), &counted, &used);
            }
            Err(error) => failures.push(format!("the near relay did not say its usage: {error}")),
        }
        for relay in [&self.relays.near, &self.relays.far] {
            let log = relay.home.log();
            let panics = log.lines().filter(|line| line.contains("panicked at"));
            failures.extend(panics.map(|line| format!("the {} relay: {line}", relay.name)));
            if let Some(folder) = &self.logs {
                std::fs::create_dir_all(folder)?;
                std::fs::write(folder.join(relay.name).with_extension("log"), log)?;
            }
        }
        let used = usage.get(Door::Quota as usize).map_or(0, |(_, up, down)| up + down);
        let quota = QuotaUse { quota: self.clients.quota, used, refusals: self.ledger.refusals() };
        failures.extend(quota.faults(length));
        let kills = std::mem::take(&mut *self.happened.books());
        failures.extend(kills.faults);
        let windows = self.happened.windows();
        if windows.len() < planned.len() {
            failures.push(format!("{} of {} faults happened", windows.len(), planned.len()));
        }
        let (mut explained, mut unexplained) = (Vec::new(), Vec::new());
        for broken in self.ledger.breaks() {
            match explains(&windows, &broken) {
                Some(kind) => explained.push((kind, broken)),
                None => unexplained.push(broken),
            }
        }
        let mut broken_by_fault = BTreeMap::new();
        explained
            .iter()
            .for_each(|(kind, _)| *broken_by_fault.entry(kind.name()).or_default() += 1);
        let alike = alike(&explained);
        explained.truncate(EXPLAINED);
        let mut faults = BTreeMap::new();
        windows.iter().for_each(|window| *faults.entry(window.kind.name()).or_default() += 1);
        let (bytes, quiet) = (self.ledger.compared(), quiet_from(length));
        let datagrams = self.ledger.datagrams();
        let deaf = deaf(&windows, &self.lateness.stood, &datagrams);
        failures.extend(deaf.iter().map(Datagrams::in_words));
        let transfers = self.ledger.transfers().into_iter();
        Ok(Summary {
            holds: false,
            failures,
            command: format!(
                "make soak HOURS={} SEED={} ARGS=\"--every '{}' --rate '{}'{}\"",
                arguments.hours,
                arguments.seed,
                arguments.every,
                arguments.rate,
                arguments.at_least.map_or(String::new(), |rate| format!(" --at-least '{rate}'"))
            ),
            machine,
            version: String::new(),
            binary: String::new(),
            seed: arguments.seed,
            seconds: length.as_secs_f64(),
            bytes,
            mbit_per_second: bytes as f64 * 8.0 / 1e6 / length.as_secs_f64(),
            faults,
            wrong: self.ledger.wrong(),
            transfers: transfers
                .map(|(door, leg, transfers)| Row { door, leg, transfers })
                .collect(),
            broken_by_fault,
            explained,
            alike,
            unexplained,
            at_least: arguments.at_least.map_or(0.0, |rate| rate.as_bits_per_second() as f64 / 1e6),
            accounts: self.balances(&usage),
            kills: kills.all,
            duplicates: datagrams.iter().map(|one| one.duplicates).sum(),
            datagrams: undisturbed(&windows, &datagrams),
            questions: undisturbed(&windows, &self.ledger.questions()),
            counts: self.ledger.counts(),
            quota,
            growth: self.watches.iter().flat_map(|watch| watch.growth(quiet, length)).collect(),
            windows,
            late_seconds: [self.lateness.most, self.lateness.sum].map(|late| late.as_secs_f64()),
            names_asked: self.names.asked(),
            alerts_told: self.alerts.told(),
        })
    }

    /// What relays keep of their clients once these are gone, each in a sentence.
    fn left_open(&self) -> Vec<String> {
        let end = Instant::now() + GONE;
        loop {
            let of = |(watch, before): (&Watch, &u64)| watch.left_open(*before);
            let left: Vec<String> =
                self.watches.iter().zip(&self.descriptors).filter_map(of).collect();
            if left.is_empty() || Instant::now() >= end {
                return left;
            }
            thread::sleep(SECOND);
        }
    }

    fn balances(&self, usage: &[(String, u64, u64)]) -> Vec<Balance> {
        let kills = self.happened.kills();
        let of = |door: Door, direction, side: &Side, booked| {
            let ((sent, received), rewritten) = (side.read(), side.framing());
            let (account, may_miss) = (door.name(), may_miss(side, &kills, door.drains()));
            Balance { account, direction, booked, received, sent, may_miss, rewritten }
        };
        let both = |(door, (_, up, down)): (&Door, &(String, u64, u64))| {
            let (upwards, downwards) = (self.ledger.up(*door), self.ledger.down(*door));
            [of(*door, "up", upwards, *up), of(*door, "down", downwards, *down)]
        };
        DOORS.iter().zip(usage).flat_map(both).collect()
    }
}

/// How long the largest transfer takes by the slowest door, which moves one direction after the other, or shares its
/// rate between two streams.
fn longest(rate: u64) -> Duration {
    Duration::from_secs(2 * LARGEST / rate.max(1))
}

/// A runtime whose one worker is on this machine: what is spawned is there.
fn runtime(host: &Host) -> Result<Runtime, Error> {
    let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
    Ok(host.run(build)??)
}

/// Waits for all clients. One that panicked has moved nothing since, and is a failure.
async fn all(running: &mut JoinSet<()>, failures: &mut Vec<String>) {
    while let Some(ended) = running.join_next().await {
        failures.extend(ended.err().map(|error| format!("a client: {error}")));
    }
}

fn trusting(
    certificate: rustls::pki_types::CertificateDer<'static>,
) -> Result<Arc<rustls::ClientConfig>, Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_panics_is_a_failure() {
        let (mut running, mut failures) = (JoinSet::new(), Vec::new());
        running.spawn(async {});
        running.spawn(async { panic!("on purpose") });
        all(&mut running, &mut failures).await;
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("panicked"), "{failures:?}");
    }
}
