//! Work that recurs beside serving.

use super::Inner;
use super::listener::Admitted;
use crate::observe::registry::ConnectionEntry;
use crate::policy::accounts::Directory;
use crate::resources::{AT_ONCE, TICK, TICKS_PER_LOOK};
use crate::runtime::certificate::Certificate;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::{clock, memory};
use ekiden_model::resources::heap_trim::Reclaim;
use ekiden_tunnel::driver::restarted;
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

/// Every second: checks legs and the certificate, measures accounts' rates, and returns
/// memory to the kernel after many connections have ended, or where much that is free stays resident.
async fn housekeeping(inner: Arc<Inner>) {
    let registry = &inner.registry;
    let (mut reclaim, mut ticks) = (Reclaim::default(), 0);
    let mut tending: Option<JoinHandle<()>> = None;
    let mut second = every(Duration::from_secs(1));
    loop {
        second.tick().await;
        inner.shared.quotas.on_second();
        let config = inner.config();
        config.certificate.iter().for_each(Certificate::refresh);
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
