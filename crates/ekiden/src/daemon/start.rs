//! `ekiden serve`: reads the configuration, starts the accelerator, and runs it until a signal ends it.

use super::accounts::AccountDirectory;
use super::announce::{self, tell_systemd};
use super::bpf::{self, Programs};
use super::control::{self, Answers, Control};
use super::listening::{Listening, in_the_way};
use super::logging::{self, LogLevel};
use super::orders::{self, Ordering};
use super::signals::{Request, Signals};
use super::{alerts, limits, reload, state, traces};
use crate::commands::client::Reloaded;
use crate::commands::doctor;
use crate::print::warn as print;
use crate::{cli, exit};
use ekiden_accounts::{AccountSync, SyncError};
use ekiden_admin::reload::Reloads;
use ekiden_admin::{Admin, AdminConfig, Running};
use ekiden_alerts::Trials;
use ekiden_config::{self as config, Draft, Loaded, Overrides};
use ekiden_linux::host::panics::restarted;
use ekiden_proxy::policy::accounts::Directory;
use ekiden_proxy::settings::{Accounts, Settings, Udp};
use ekiden_proxy::{Handle, PendingLines, Server, StartError};
use ekiden_traces::TraceExport;
use sd_notify::NotifyState;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::{debug, error, info, warn};

/// How often usage goes into the journal, which is written each 750 ms: a killed process loses at most a second.
const COUNT_INTERVAL: Duration = Duration::from_millis(200);
/// Each nth time the limits are updated too: periods end, and a relay's share of a quota grows.
const UPDATE_LIMITS: u32 = 5;

/// What still waits for a disk or for names at the end is given up after this.
const AT_END: Duration = Duration::from_secs(10);

/// A disk that hangs, or a pipe that nobody reads, has so long for the last lines of the access log.
const LAST_LINES: Duration = Duration::from_secs(5);

/// State that does not change while the daemon runs.
pub(crate) struct Fixed {
    /// The file named on the command line; otherwise each reload searches for it.
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
    /// The random name of this start.
    pub(crate) drawn: String,
    pub(crate) draft: Draft,
    pub(crate) level: LogLevel,
}

/// Runs the accelerator. Returns the exit code.
pub(crate) fn run(args: &cli::Serve) -> u8 {
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
            print(&format!("ekiden serve: cannot start the log: {error}\n"));
            return exit::SYSTEM;
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "cannot start threads");
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
    let mut pending = None;
    let ran = runtime.block_on(daemon(loaded, fixed, &mut pending));
    runtime.shutdown_timeout(AT_END);
    // what was cut off has its line only now
    if let Some(lines) = pending {
        lines.wait(LAST_LINES);
    }
    ran.unwrap_or_else(|code| code)
}

/// Logs why the daemon cannot start.
fn failed(error: impl std::fmt::Display, code: u8) -> u8 {
    error!("{error}");
    code
}

/// Runs until a signal. `Err` is an exit code. Lines of the access log may still be `pending` then.
async fn daemon(
    loaded: Loaded,
    fixed: Fixed,
    pending: &mut Option<PendingLines>,
) -> Result<u8, u8> {
    info!("ekiden {} starts, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
    let mut settings = settle(&loaded, &fixed)?;
    let alerts = alerts::settings(&loaded.reading, &settings)
        .map_err(|why| failed(why, exit::CONFIGURATION))?;
    let traces = traces::settings(&loaded.reading, &settings);
    let mut programs = Programs::new();
    // the log has it
    let _lacks = programs.settle(&mut settings);
    let mut signals = Signals::new()
        .map_err(|error| failed(format!("cannot handle signals: {error}"), exit::SYSTEM))?;
    let mut control = settings.control.as_deref().map(Control::bind).transpose();
    let control = control.as_mut().map_err(|error| failed(&*error, exit::CANNOT_CREATE))?.as_mut();
    let (reloads, mut asked) = Reloads::new();
    let admin = Admin::start(&admin_config(&loaded), reloads.clone()).await.map_err(|error| {
        let code = match &error {
            ekiden_admin::StartError::Listen(_) => exit::UNAVAILABLE,
            ekiden_admin::StartError::Token(_) => exit::CANNOT_CREATE,
        };
        failed(error, code)
    })?;
    let closed: Vec<_> = admin.iter().map(Admin::address).collect();
    settings.closed.clone_from(&closed);
    let mut limit = settings.timeouts.stop;
    let sync = open_accounts(&settings).await.map_err(|error| {
        let code = match &error {
            SyncError::Store(_) => exit::UNAVAILABLE,
            SyncError::Journal(_) | SyncError::System(_) => exit::CANNOT_CREATE,
        };
        failed(format!("accounts: {error}"), code)
    })?;
    let syncing = sync.clone().map(|sync| {
        let run = move || {
            let sync = Arc::clone(&sync);
            async move { sync.run().await }
        };
        tokio::spawn(restarted("accounts, their usage and their database", run))
    });
    let accounts = sync.clone().map(|sync| Arc::new(AccountDirectory::new(sync)));
    let directory = accounts.clone().map(|accounts| -> Arc<dyn Directory> { accounts });
    let (configured, acme) = (settings.listen.clone(), settings.acme.clone());
    let server = Server::start_with(Arc::new(settings), directory).map_err(|error| {
        let code = start_code(&error);
        let why = in_the_way(&error, &fixed.draft, &fixed.overrides);
        failed(format!("{error}{why}"), code)
    })?;
    let handle = server.handle();
    *pending = Some(handle.pending_lines());
    let mut ordering = Ordering::default();
    ordering.follow(&acme, &handle);
    traces::announce(&traces);
    let exporting = TraceExport::start(traces, handle.clone());
    let alerting = alerts::start(alerts, &handle, sync.clone(), &loaded.reading);
    let counting = accounts.clone().map(|accounts| {
        let count = move || count(Arc::clone(&accounts));
        tokio::spawn(restarted("the count of usage", count))
    });
    let (mut addresses, mut listening) = (Vec::new(), Listening::default());
    announce::listening(&mut addresses, handle.status().listen);
    listening.set(&configured, &addresses);
    let mut text = loaded.text;
    let mut tunnels = reload::tunnels(&fixed.draft);
    let answering = control.and_then(|control| {
        info!(
            "control socket {}, for `ekiden status`, `explain` and `top`",
            control.path().display()
        );
        answer(control, &handle, alerting.trials(), (reloads.clone(), fixed.file.clone()))
    });
    if let Some(admin) = &admin {
        let doctor = doctor::of_daemon(&handle);
        let trials = alerts::of_page(alerting.trials());
        admin.runs(Running { handle: handle.clone(), sync: sync.clone(), doctor, trials });
    }
    tell_systemd(&[NotifyState::Ready]);
    while let Request::Reload(answer) = signals.reload_or_stop(&mut asked).await {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell_systemd(&[NotifyState::Reloading, now]),
            Err(error) => debug!(%error, "no monotonic clock to notify systemd"),
        }
        let done = reload::read(&fixed, &text, tunnels.as_ref()).and_then(|reread| {
            let mut settings = reread.settings;
            let lacks = programs.settle(&mut settings);
            settings.closed.clone_from(&closed);
            let configured = settings.listen.clone();
            settings.listen = listening.resolve(&configured);
            let stop = settings.timeouts.stop;
            let settings = Arc::new(settings);
            server.reload(Arc::clone(&settings)).map_err(|error| {
                let why = in_the_way(&error, &reread.draft, &fixed.overrides);
                let line = format!("{error}{why}");
                error!("{line}; the old configuration stays in effect");
                vec![line]
            })?;
            // the first tunnels come with a reload, later changes do not
            tunnels = tunnels.take().or(reread.tunnels);
            ordering.follow(&settings.acme, &handle);
            alerting.follow(reread.alerts);
            exporting.follow(reread.traces);
            fixed.level.set(&reread.log);
            bpf::agree(&settings);
            limit = stop;
            announce::listening(&mut addresses, handle.status().listen);
            listening.set(&configured, &addresses);
            text = reread.text;
            if let Some(admin) = &admin {
                admin.shows(reread.shown);
            }
            info!(
                "reloaded; live connections keep their configuration, except for accounts' limits"
            );
            Ok([reread.warnings, lacks].concat())
        });
        if let Err(why) = &done {
            server.on_reload_refused(why.clone());
        }
        if let Some(answer) = answer {
            answer.give(done);
        }
        tell_systemd(&[NotifyState::Ready]);
    }
    drop((asked, alerting, exporting));
    tell_systemd(&[NotifyState::Stopping]);
    info!(
        "stopping: no new connections; live ones may run for {limit}, a second signal ends at once"
    );
    let stopped = tokio::select! {
        stopped = server.stop(limit) => Some(stopped),
        () = signals.stop() => None,
    };
    let connections = |n: u64| crate::print::count(n, "connection");
    match stopped {
        Some(stopped) if stopped.cut > 0 => {
            let finished = connections(stopped.finished);
            let were = if stopped.cut == 1 { "was" } else { "were" };
            warn!("stopped: {finished} finished, {} {were} cut", stopped.cut);
        }
        Some(stopped) => info!("stopped: {} finished", connections(stopped.finished)),
        None => {
            let cut = connections(handle.cut());
            warn!("stopped at once by a second signal, which cut {cut}");
        }
    }
    for task in [answering, counting].into_iter().flatten() {
        task.abort();
    }
    if let (Some(sync), Some(syncing)) = (sync, syncing) {
        accounts.iter().for_each(|accounts| accounts.count());
        syncing.abort();
        sync.close().await;
    }
    // after usage: its disk may hang
    if let Some(admin) = admin {
        admin.stop().await;
    }
    Ok(exit::FINE)
}

/// The exit code for a server that does not start.
const fn start_code(error: &StartError) -> u8 {
    match error {
        StartError::Listen { .. } | StartError::Tunnels(_) => exit::UNAVAILABLE,
        StartError::AccessLog(_) | StartError::Cache(_) => exit::CANNOT_CREATE,
        StartError::Settings(_) => exit::CONFIGURATION,
    }
}

/// Counts usage, and updates limits, until it is aborted.
async fn count(accounts: Arc<AccountDirectory>) {
    let mut tick = tokio::time::interval(COUNT_INTERVAL);
    for n in 0_u32.. {
        tick.tick().await;
        match n % UPDATE_LIMITS {
            0 => accounts.give(),
            _ => accounts.count(),
        }
    }
}

/// Answers on the control socket.
fn answer(
    control: &mut Control,
    handle: &Handle,
    trials: Trials,
    (reloads, file): (Reloads, Option<PathBuf>),
) -> Option<JoinHandle<()>> {
    let (asking, explaining, measuring) = (handle.clone(), handle.clone(), handle.clone());
    let for_account = handle.clone();
    control.answer(Answers {
        status: Arc::new(move || asking.status()),
        explain: Arc::new(move |connection| explaining.explain(connection)),
        explain_account: Arc::new(move |name| for_account.explain_account(name)),
        measure: Arc::new(move |peer, seconds| {
            let handle = measuring.clone();
            Box::pin(async move { handle.measure(&peer, seconds).await })
        }),
        try_alerts: Arc::new(move || {
            let trials = trials.clone();
            Box::pin(async move { trials.send().await })
        }),
        reload: Arc::new(move || {
            let (reloads, file) = (reloads.clone(), file.clone());
            Box::pin(async move {
                let (warnings, errors) = match reloads.ask().await {
                    Ok(warnings) => (warnings, Vec::new()),
                    Err(errors) => (Vec::new(), errors),
                };
                let file = file.or_else(config::find).map(|file| file.display().to_string());
                Reloaded { file, errors, warnings }
            })
        }),
    })
}

/// What the management port needs, from the configuration.
pub(crate) fn admin_config(loaded: &Loaded) -> AdminConfig {
    let reading = &loaded.reading;
    let is_set = |key: &str| reading.origins.contains_key(&format!("management.{key}"));
    let folder = reading.draft.accounts.state.clone().or_else(state::directory);
    AdminConfig {
        settings: reading.draft.management.clone(),
        folder: folder.ok_or_else(|| "no home directory; set `state` in [accounts]".to_owned()),
        listen_is_set: is_set("listen"),
        token_file_is_set: is_set("token_file"),
        peers: reading.settings.tunnel.state.clone().or_else(state::directory),
        listens_for_tunnels: !reading.settings.tunnel.listen.is_empty(),
        configuration: shown(loaded),
    }
}

/// The configuration as `ekiden config show --json` prints it, without secrets.
pub(crate) fn shown(loaded: &Loaded) -> serde_json::Value {
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    config::show_json(&loaded.reading, file.as_deref())
}

/// Opens the accounts, if they are enabled.
async fn open_accounts(settings: &Settings) -> Result<Option<Arc<AccountSync>>, SyncError> {
    let Accounts { enabled, required, cleartext, database, state } = &settings.accounts;
    if !enabled {
        return Ok(None);
    }
    let Some(folder) = state.clone().or_else(state::directory) else {
        let why = "no home directory; set `state` in [accounts]".to_owned();
        return Err(SyncError::System(why));
    };
    let sync = AccountSync::open(&folder, database.as_deref(), &settings.name).await?;
    let status = sync.status();
    info!(
        "accounts: {} in {}; {}; {}",
        status.accounts,
        status.database,
        if *required { "every client needs one" } else { "clients that a rule admits need none" },
        if *cleartext {
            "passwords are accepted without encryption"
        } else {
            "passwords are accepted only on loopback and within TLS"
        },
    );
    Ok(Some(Arc::new(sync)))
}

/// Fills in what only the running process knows, and logs the decisions. `Err` is an exit code.
fn settle(loaded: &Loaded, fixed: &Fixed) -> Result<Settings, u8> {
    match &loaded.file {
        Some(file) => info!("configuration {}", file.display()),
        None => info!("no configuration file: using defaults and arguments"),
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
    settings.wireguard.state = settings.accounts.state.clone().or_else(state::directory);
    orders::settle(&mut settings).map_err(|why| failed(why, exit::CONFIGURATION))?;
    match &settings.tls.certificate {
        Some(_) if settings.acme.is_on() => {
            let (names, directory) = (settings.acme.names.join(", "), &settings.acme.directory);
            info!("TLS on the same ports, with a certificate for {names} from {directory}");
        }
        Some(file) => info!("TLS on the same ports, with the certificate {}", file.display()),
        None => {}
    }
    info!("name in Via: {}", settings.name);
    limits::say_kernel();
    let asked = ["pipes", "connections"]
        .map(|key| loaded.reading.origins.contains_key(&format!("budgets.{key}")));
    let management = loaded.reading.draft.management.listen != config::At::Off;
    limits::descriptors(&mut settings, asked.into(), management);
    info!(
        "budgets: {} connections, {} per head with at most {} fields, {} for buffered bytes",
        settings.budgets.connections,
        settings.budgets.head,
        settings.budgets.fields,
        settings.budgets.memory
    );
    match settings.udp {
        Udp { associations: 0, .. } => info!("UDP ASSOCIATE is off"),
        Udp { associations, idle, .. } => {
            info!("UDP ASSOCIATE: at most {associations} associations, idle timeout {idle}")
        }
    }
    let by_account = settings.accounts.enabled && settings.accounts.required;
    if let Some(line) = announce::sharing_line(&settings.sharing, by_account) {
        info!("{line}");
    }
    if let Some(line) = announce::cache_line(&settings.cache) {
        info!("{line}");
    }
    reload::access_log(&settings.access_log).map_err(|why| {
        error!("{why}");
        exit::CANNOT_CREATE
    })?;
    Ok(settings)
}
