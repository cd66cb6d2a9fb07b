//! `ekiden serve`: reads the configuration, says what it decided, and drives the accelerator until a
//! signal ends it.

use crate::config::{self, Draft, Loaded, Overrides};
use crate::control::{self, Control};
use crate::households::Households;
use crate::logging::{self, Level};
use crate::management::{Management, Running};
use crate::print::warn as print;
use crate::programs::{self, Programs};
use crate::reload::{self, Answer, Reloads};
use crate::{cli, exit, limits, state};
use ekiden_accounts::{Keeper, KeeperError};
use ekiden_model::units::Rate;
use ekiden_proxy::accounts::Directory;
use ekiden_proxy::settings::{self, Accounts, Cache, Settings, Strangers, Udp};
use ekiden_proxy::{Server, StartError};
use sd_notify::NotifyState;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

/// Between two times that what households used goes into the journal, which is written each 750 ms: a killed process
/// loses no more than a second.
const COUNT: Duration = Duration::from_millis(200);
/// Of so many times one also gives households what they may: periods end, and a relay's part of a quota grows.
const GIVE: u32 = 5;

/// What does not change while the daemon runs.
pub(crate) struct Fixed {
    /// Named on the command line; else looked for at each reload.
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
    /// The name drawn at start.
    pub(crate) drawn: String,
    pub(crate) draft: Draft,
    pub(crate) level: Level,
}

/// Runs the accelerator. Returns the exit code.
#[must_use]
pub fn run(args: &cli::Serve) -> u8 {
    let overrides = args.config.overrides();
    let loaded = config::load(args.config.config.as_deref(), &overrides);
    if !loaded.reading.is_usable() {
        print(&config::render_all(&loaded.reading.problems));
        print("\nekiden serve: not started\n");
        return exit::CONFIGURATION;
    }
    let level = match logging::start(&loaded.reading.draft.log) {
        Ok(level) => level,
        Err(error) => {
            print(&format!("ekiden serve: no log: {error}\n"));
            return exit::SYSTEM;
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "the system gives no threads");
            return exit::SYSTEM;
        }
    };
    let fixed = Fixed {
        file: args.config.config.clone(),
        overrides,
        drawn: format!("ekiden-{:08x}", RandomState::new().hash_one(std::process::id()) as u32),
        draft: loaded.reading.draft.clone(),
        level,
    };
    runtime.block_on(daemon(loaded, fixed))
}

async fn daemon(loaded: Loaded, fixed: Fixed) -> u8 {
    info!("ekiden {} begins, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
    let mut settings = match settle(&loaded, &fixed) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let mut programs = Programs::new();
    programs.settle(&mut settings);
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            error!(%error, "signals cannot be received");
            return exit::SYSTEM;
        }
    };
    let mut control = match settings.control.as_deref().map(Control::bind).transpose() {
        Ok(control) => control,
        Err(error) => {
            error!("{error}");
            return exit::CANNOT_CREATE;
        }
    };
    let (reloads, mut asked) = Reloads::new();
    let management = match Management::start(&loaded, reloads).await {
        Ok(management) => management,
        Err(code) => return code,
    };
    let closed: Vec<_> = management.iter().map(Management::address).collect();
    settings.closed.clone_from(&closed);
    let mut limit = settings.timeouts.stop;
    let keeper = match keeper(&settings).await {
        Ok(keeper) => keeper,
        Err(error) => {
            error!("accounts: {error}");
            return match error {
                KeeperError::Store(_) => exit::UNAVAILABLE,
                KeeperError::Journal(_) | KeeperError::System(_) => exit::CANNOT_CREATE,
            };
        }
    };
    let keeping = keeper.clone().map(|keeper| tokio::spawn(async move { keeper.run().await }));
    let households = keeper.clone().map(|keeper| Arc::new(Households::new(keeper)));
    let directory = households.clone().map(|households| -> Arc<dyn Directory> { households });
    let server = match Server::start_with(Arc::new(settings), directory) {
        Ok(server) => server,
        Err(error) => {
            error!("{error}");
            return match error {
                StartError::Listen { .. } => exit::UNAVAILABLE,
                StartError::Tunnels(_) => exit::UNAVAILABLE,
                StartError::AccessLog(_) | StartError::Cache(_) => exit::CANNOT_CREATE,
                StartError::Settings(_) => exit::CONFIGURATION,
            };
        }
    };
    let handle = server.handle();
    let giving = households.clone().map(|households| {
        households.limit(handle.households());
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(COUNT);
            for n in 0_u32.. {
                beat.tick().await;
                match n % GIVE {
                    0 => households.give(),
                    _ => households.count(),
                }
            }
        })
    });
    let mut listening = Vec::new();
    say_listening(&mut listening, handle.status().listen);
    let mut answering = None;
    if let Some(control) = &mut control {
        info!(
            "control socket {}, for `ekiden status`, `explain` and `top`",
            control.path().display()
        );
        let handle = handle.clone();
        let (explaining, measuring) = (handle.clone(), handle.clone());
        answering = control.answer(
            Arc::new(move || handle.status()),
            Arc::new(move |connection| explaining.explain(connection)),
            Arc::new(move |relay, seconds| {
                let handle = measuring.clone();
                Box::pin(async move { handle.measure(&relay, seconds).await })
            }),
        );
    }
    if let Some(management) = &management {
        management.runs(Running { handle: handle.clone(), keeper: keeper.clone() });
    }
    tell_systemd(&[NotifyState::Ready]);
    while let Asked::Reload(answer) = signals.reload_or_stop(&mut asked).await {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell_systemd(&[NotifyState::Reloading, now]),
            Err(error) => debug!(%error, "no monotonic clock to tell systemd"),
        }
        let done = reload::read(&fixed).and_then(|(mut settings, warnings)| {
            programs.settle(&mut settings);
            settings.closed.clone_from(&closed);
            // a port the kernel chose is kept while the same is asked for
            if settings.listen == fixed.draft.top.listen {
                settings.listen = handle.status().listen;
            }
            let stop = settings.timeouts.stop;
            let settings = Arc::new(settings);
            server.reload(Arc::clone(&settings)).map_err(|error| {
                error!("{error}; the old configuration holds");
                vec![error.to_string()]
            })?;
            programs::agree(&settings);
            limit = stop;
            say_listening(&mut listening, handle.status().listen);
            info!(
                "reloaded; live connections keep the configuration they began with, but for households' limits"
            );
            Ok(warnings)
        });
        if let Some(answer) = answer {
            answer.give(done);
        }
        tell_systemd(&[NotifyState::Ready]);
    }
    drop(asked);
    tell_systemd(&[NotifyState::Stopping]);
    info!(
        "stopping: no new connections; live ones have {limit} to end, a second signal ends at once"
    );
    let stopped = tokio::select! {
        stopped = server.stop(limit) => Some(stopped),
        () = signals.stop() => None,
    };
    match stopped {
        Some(stopped) if stopped.cut > 0 => {
            warn!(
                "stopped: {} connections ended by themselves, {} were cut",
                stopped.finished, stopped.cut
            );
        }
        Some(stopped) => info!("stopped: {} connections ended by themselves", stopped.finished),
        None => warn!("stopped at once by a second signal: {} connections were cut", handle.cut()),
    }
    for task in [answering, giving].into_iter().flatten() {
        task.abort();
    }
    if let Some(management) = management {
        management.stop();
    }
    if let (Some(keeper), Some(keeping)) = (keeper, keeping) {
        households.iter().for_each(|households| households.count());
        keeping.abort();
        keeper.close().await;
    }
    exit::FINE
}

/// Households, where there are accounts.
async fn keeper(settings: &Settings) -> Result<Option<Arc<Keeper>>, KeeperError> {
    let Accounts { enabled, required, cleartext, database, state } = &settings.accounts;
    if !enabled {
        return Ok(None);
    }
    let Some(folder) = state.clone().or_else(state::directory) else {
        let why = "there is no home directory; set `state` in [accounts]".to_owned();
        return Err(KeeperError::System(why));
    };
    let keeper = Keeper::open(&folder, database.as_deref(), &settings.name).await?;
    let standing = keeper.standing();
    info!(
        "accounts: {} households in {}, {}; {}",
        standing.accounts,
        standing.database,
        if *required { "everybody has to be one" } else { "whom rules admit may come in without" },
        if *cleartext {
            "passwords are taken in the clear"
        } else {
            "passwords are taken on loopback and within TLS alone"
        },
    );
    Ok(Some(Arc::new(keeper)))
}

/// Says which addresses have come and which are gone.
fn say_listening(before: &mut Vec<SocketAddr>, now: Vec<SocketAddr>) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        info!("listening on {address}: HTTP, CONNECT, SOCKS5, SOCKS4a");
    }
    for address in before.iter().filter(|address| !now.contains(address)) {
        info!("no longer listening on {address}");
    }
    *before = now;
}

/// Fills in what only the running process knows, and says what was decided. `Err` is an exit code.
fn settle(loaded: &Loaded, fixed: &Fixed) -> Result<Settings, u8> {
    match &loaded.file {
        Some(file) => info!("configuration {}", file.display()),
        None => info!("no configuration file: the defaults and the arguments hold"),
    }
    for problem in &loaded.reading.problems {
        warn!("{}", problem.line());
    }
    let mut settings = loaded.reading.settings.clone();
    if fixed.draft.top.name.is_none() {
        settings.name.clone_from(&fixed.drawn);
    }
    if fixed.draft.top.control == config::Control::Auto {
        settings.control = Some(control::default_path());
    }
    if settings.tunnel.state.is_none() {
        settings.tunnel.state = state::directory();
    }
    if let Some(certificate) = &settings.tls.certificate {
        info!("TLS on the same ports, with the certificate {}", certificate.display());
    }
    for address in &settings.tunnel.listen {
        info!("listening for tunnels on UDP {address}");
    }
    info!("name in Via: {}", settings.name);
    limits::say_kernel();
    let asked = loaded.reading.origins.contains_key("budgets.connections");
    limits::descriptors(&mut settings, asked);
    info!(
        "budgets: {} connections, {} for heads of at most {} fields, {} for bytes waiting to be written",
        settings.budgets.connections,
        settings.budgets.head,
        settings.budgets.fields,
        settings.budgets.memory
    );
    match settings.udp {
        Udp { associations: 0, .. } => info!("UDP ASSOCIATE is switched off"),
        Udp { associations, idle, .. } => {
            info!(
                "UDP ASSOCIATE: at most {associations} associations, each ends when silent for {idle}"
            )
        }
    }
    let by_account = settings.accounts.enabled && settings.accounts.required;
    if let Some(line) = households_line(&settings.households, by_account) {
        info!("{line}");
    }
    if let Some(line) = cache_line(&settings.cache) {
        info!("{line}");
    }
    reload::access_log(&settings.access_log).map_err(|why| {
        error!("{why}");
        exit::CANNOT_CREATE
    })?;
    Ok(settings)
}

/// What households share, if there are any or they share anything; whether everybody has to have an account.
fn households_line(households: &settings::Households, by_account: bool) -> Option<String> {
    if *households == settings::Households::default() {
        return None;
    }
    let rate = |rate: Option<Rate>| rate.map_or_else(|| "no limit".to_owned(), |r| r.to_string());
    let strangers = match (households.strangers, by_account) {
        (Strangers::Refuse, _) => "refused",
        (Strangers::Allow, true) => "served where an account claims them",
        (Strangers::Allow, false) => "served",
    };
    Some(format!(
        "households: {}; all together {} down, {} up; clients that none claims are {strangers}",
        households.list.len(),
        rate(households.downlink),
        rate(households.uplink)
    ))
}

/// What is kept of answers, if anything is.
fn cache_line(cache: &Cache) -> Option<String> {
    let memory = cache.memory?;
    let disk = match (&cache.disk, &cache.directory) {
        (Some(disk), Some(folder)) => format!(" and {disk} on disk in {}", folder.display()),
        _ => ", nothing on disk".to_owned(),
    };
    Some(format!("HTTP cache: {memory} of memory{disk}; bodies up to {}", cache.largest))
}

/// Without systemd there is nobody to tell, and that is fine.
fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "systemd cannot be told");
    }
}

enum Asked {
    /// And who wants to know what became of it, where somebody does.
    Reload(Option<Answer>),
    Stop,
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn reload_or_stop(&mut self, asked: &mut mpsc::Receiver<Answer>) -> Asked {
        tokio::select! {
            _ = self.hangup.recv() => Asked::Reload(None),
            Some(answer) = asked.recv() => Asked::Reload(Some(answer)),
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
        }
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
