//! Work that recurs beside serving.

use super::Inner;
use super::listener::Admitted;
use crate::observe::registry::ConnectionEntry;
use crate::policy::accounts::Directory;
use crate::resources::{AT_ONCE, TICK, TICKS_PER_LOOK};
use crate::runtime::certificate::Certificate;
use ekiden_linux::host::panics::restarted;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::{clock, memory};
use ekiden_model::resources::heap_trim::Reclaim;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

/// Between two checks of accounts: a refused account's connections end within a second of a change.
const ACCOUNT_CHECKS: Duration = Duration::from_millis(200);

/// All that happens by time alone, for as long as the relay lives.
pub(super) fn background_tasks(
    inner: &Arc<Inner>,
    directory: Option<Arc<dyn Directory>>,
    admitted: Admitted,
) -> [JoinHandle<()>; 5] {
    let admitted = Arc::new(Mutex::new(admitted));
    [
        keep("housekeeping", inner, housekeeping),
        keep("rates and quotas", inner, |inner| Arc::clone(&inner.shared.quotas).run()),
        keep("buffers and idle connections", inner, tick_resources),
        keep("the look at accounts", inner, move |inner| {
            enforce_accounts(inner, directory.clone())
        }),
        keep("clients that waited", inner, move |inner| inner.begin_waiting(Arc::clone(&admitted))),
    ]
}

/// Runs a task, and begins it anew where it panics.
pub(super) fn keep<F>(
    what: &'static str,
    inner: &Arc<Inner>,
    run: impl Fn(Arc<Inner>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let inner = Arc::clone(inner);
    tokio::spawn(restarted(what, move || run(Arc::clone(&inner))))
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Seconds between two looks at this process's memory.
const MEMORY_LOOKS: u32 = 10;

/// Every second: checks legs, the certificate and the system's files of names, measures accounts' rates, and returns
/// memory to the kernel after many connections have ended, or where much that is free stays resident.
async fn housekeeping(inner: Arc<Inner>) {
    let registry = &inner.registry;
    let (mut reclaim, mut ticks) = (Reclaim::default(), 0);
    let mut tending: Option<JoinHandle<()>> = None;
    let mut refreshing: Option<JoinHandle<()>> = None;
    let mut rereading: Option<JoinHandle<()>> = None;
    let mut second = every(Duration::from_secs(1));
    loop {
        second.tick().await;
        inner.shared.quotas.on_second();
        let config = inner.config();
        // its disk may hang, and the rest goes on
        if config.certificate.is_some() && refreshing.as_ref().is_none_or(JoinHandle::is_finished) {
            let config = Arc::clone(&config);
            let refresh = move || config.certificate.iter().for_each(Certificate::refresh);
            refreshing = Some(tokio::task::spawn_blocking(refresh));
        }
        if rereading.as_ref().is_none_or(JoinHandle::is_finished) {
            let names = Arc::clone(&inner.shared.system_names);
            rereading = Some(tokio::task::spawn_blocking(move || names.refresh()));
        }
        config.check_legs();
        let has_door = config.settings.wireguard.is_on();
        drop(config);
        inner.check_gateway();
        // the kernel may take its time, and the rest goes on
        if has_door && tending.as_ref().is_none_or(JoinHandle::is_finished) {
            let inner = Arc::clone(&inner);
            tending = Some(tokio::task::spawn_blocking(move || inner.tend_wireguard()));
        }
        inner.tend_names();
        let look = ticks == 0;
        ticks = (ticks + 1) % MEMORY_LOOKS;
        let slack = look && look_at_memory(&inner, &mut reclaim).await;
        if reclaim.on_tick(registry.len(), registry.take_most()) || slack {
            // off the runtime's threads, which serve the remaining connections
            let _ = tokio::task::spawn_blocking(memory::release).await;
        }
    }
}

/// Whether to give memory back.
async fn look_at_memory(inner: &Inner, reclaim: &mut Reclaim) -> bool {
    let now = tokio::task::spawn_blocking(memory::process).await.ok().flatten();
    *locked(&inner.memory) = now;
    now.is_some_and(|now| reclaim.on_look(now.resident, now.in_use))
}

/// Ten times a second: checks the paths of a tenth of the connections, measures a tenth of the legs, and divides
/// buffers. Between some of them it lets other tasks run, or a request would wait behind thousands.
async fn tick_resources(inner: Arc<Inner>) {
    let mut tenth = every(TICK.into());
    loop {
        tenth.tick().await;
        let silence = inner.shared.resources.silent_tunnel();
        let mut silent = Vec::new();
        for some in inner.registry.visit(TICKS_PER_LOOK as usize).chunks(AT_ONCE) {
            let now = clock::now();
            some.iter().for_each(|entry| entry.check_paths(now));
            let is_silent = |entry: &&Arc<ConnectionEntry>| {
                silence.is_some_and(|silence| entry.is_silent(now, silence))
            };
            silent.extend(some.iter().filter(is_silent).cloned());
            tokio::task::yield_now().await;
        }
        inner.shared.resources.tick(silent).await;
    }
}

/// Ends the connections of accounts that may not be served any more.
async fn enforce_accounts(inner: Arc<Inner>, directory: Option<Arc<dyn Directory>>) {
    let Some(directory) = directory else { return };
    let mut check = every(ACCOUNT_CHECKS);
    loop {
        check.tick().await;
        inner.registry.end_refused(|account| directory.may_stay(account));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::settings::{Settings, Tls};
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::fs::{self, File};
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::thread;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_certificate_on_a_disk_that_hangs_holds_up_no_thread_that_relays() {
        let folder = tempfile::tempdir().unwrap();
        let made = ekiden_testkit::Certificate::self_signed(folder.path(), "own", &["localhost"]);
        let path = made.certificate;
        let settings = Settings {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            tls: Tls { certificate: Some(path.clone()), key: Some(made.key) },
            ..Settings::default()
        };
        let server = Server::start(Arc::new(settings)).unwrap();
        // whoever reads a pipe waits for who writes
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let (is_read, reading) = oneshot::channel();
        let (go, goes_on) = mpsc::channel::<()>();
        let pipe = path.clone();
        let disk = thread::spawn(move || {
            let _end = File::options().write(true).open(pipe).unwrap();
            is_read.send(()).unwrap();
            // a runtime that waits for the disk never says so
            let _late = goes_on.recv_timeout(Duration::from_secs(60));
        });
        reading.await.unwrap();
        go.send(()).unwrap();
        disk.join().unwrap();
        drop(server);
        // nor may a later look wait at the end
        let end = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        drop(end);
    }

    #[tokio::test]
    async fn a_running_relay_takes_name_servers_from_a_changed_file() {
        let folder = tempfile::tempdir().unwrap();
        let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let settings = Settings { listen, ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        let inner = &server.inner;
        fs::write(folder.path().join("resolv.conf"), "nameserver 192.0.2.77\n").unwrap();
        inner.shared.system_names.turn_to(folder.path());
        let is_taken = || {
            let servers = inner.config().name_servers.list();
            servers.iter().any(|server| server.setting.to_string() == "192.0.2.77:53")
        };
        let taken = async {
            while !is_taken() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), taken).await.expect("it is not read again");
    }
}
