//! Accounts of a running relay: the directory in memory, the journal on disk, and the database,
//! which may be unreachable at times.
//!
//! [`AccountSync::open`], then [`AccountSync::run`] in a task of its own, [`AccountSync::used`] for
//! what was relayed, [`AccountSync::directory`] and [`AccountSync::verify_login`] for who comes in,
//! [`AccountSync::close`] at the end.

mod database;
mod disk;
mod leases;
mod pause;
mod presence;
mod recall;
mod settle;
mod unreadable;
mod zones;

use crate::account::{AccountId, Attributes};
use crate::clock::SharedClock;
use crate::directory::Directory;
use crate::journal::{Journal, JournalError};
use crate::locked;
use crate::login::{LoginAttempts, LoginVerdict};
use crate::store::in_time::in_time;
use crate::store::{AccountTable, FleetRelay, Store, StoreError, UnreadableAccount};
use database::counted_for;
use disk::{Unwritten, at_end, own_id};
use ekiden_linux::host::state_files;
use jiff::Timestamp;
use leases::Leases;
use pause::Pause;
use presence::Presence;
use recall::Recalled;
use settle::Batches;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use unreadable::Unreadable;
use zones::UnknownZones;

/// Interval of looking at the database: a change is seen after this and its reading. Each look
/// reads two numbers.
const LOOK: Duration = Duration::from_millis(500);
/// Looks between two times that usage is settled and the relay says it is there: 5 s.
const SETTLE: u32 = 10;

/// Why the accounts could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The database, without a saved snapshot to start from.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The journal.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// The system.
    #[error("{0}")]
    System(String),
}

/// A relay's share of a quota. Bytes since its period began, both directions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaShare {
    /// The share.
    pub may: u64,
    /// Used so far.
    pub used: u64,
    /// The share may grow: the database has been asked.
    pub more: bool,
}

/// The state of the accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncStatus {
    /// `sqlite` or `postgresql`.
    pub database: &'static str,
    /// Why the database is unreachable; `None` while it is reachable.
    pub away: Option<String>,
    /// The last contact, seconds since 1970; `None` before the first.
    pub heard: Option<i64>,
    /// The accounts known here, without those that cannot be read.
    pub accounts: usize,
    /// Accounts that are in the database and cannot be read; they are not served.
    pub unreadable: usize,
    /// The first of them: its name, the column, and why.
    pub unreadable_first: Option<String>,
    /// Their version.
    pub version: i64,
    /// Totals that the database has perhaps not heard of.
    pub unsettled: usize,
    /// Why usage cannot be written to disk; it is kept in memory meanwhile.
    pub unwritten: Option<String>,
    /// The relays that use the database, this one too, as they were heard of when usage was settled last.
    pub relays: Vec<FleetRelay>,
}

/// A relay's accounts.
#[derive(Debug)]
pub struct AccountSync {
    folder: PathBuf,
    /// An address of PostgreSQL; none is SQLite in the folder.
    address: Option<String>,
    name: String,
    presence: Arc<Mutex<Presence>>,
    store: Mutex<Option<Store>>,
    /// The number of the database that the folder counts for; none before the first.
    counts_for: Mutex<Option<i64>>,
    directory: RwLock<Arc<Directory>>,
    attempts: LoginAttempts,
    journal: Arc<Mutex<Journal>>,
    /// Held by whoever writes the journal's file or replaces it, until the disk has done so.
    turn: Arc<tokio::sync::Mutex<()>>,
    recalled: Mutex<Recalled>,
    relays: Mutex<Vec<FleetRelay>>,
    leases: Arc<Mutex<Leases>>,
    /// How leases are asked for, and which was asked for last.
    asking: Mutex<Batches>,
    batches: Mutex<Batches>,
    unreadable: Mutex<Unreadable>,
    zones: Mutex<UnknownZones>,
    clock: SharedClock,
    state: Mutex<(Option<String>, Option<i64>)>,
    unwritten: Mutex<Unwritten>,
}

impl AccountSync {
    /// Opens a relay's `folder`, and its database: at `address`, or in the same folder. With
    /// PostgreSQL away, the accounts known before are known again. Errors: also that the folder
    /// counted for another database.
    pub async fn open(folder: &Path, address: Option<&str>, name: &str) -> Result<Self, SyncError> {
        state_files::make_folder(folder)
            .map_err(|error| StoreError::Folder { path: folder.to_owned(), error })?;
        let journal = Journal::open(folder)?;
        if let Some(aside) = journal.set_aside() {
            tracing::error!(
                "usage journal was corrupt; moved it to {} and started a new one",
                aside.display()
            );
        }
        let presence = Presence::new(own_id(folder, journal.identity())?);
        let presence = presence.map_err(|error| SyncError::System(error.to_string()))?;
        let sync = Self {
            folder: folder.to_owned(),
            address: address.map(str::to_owned),
            name: name.to_owned(),
            presence: Arc::new(Mutex::new(presence)),
            store: Mutex::default(),
            counts_for: Mutex::new(counted_for(folder)?),
            directory: RwLock::default(),
            attempts: LoginAttempts::new().map_err(SyncError::System)?,
            journal: Arc::new(Mutex::new(journal)),
            turn: Arc::default(),
            recalled: Mutex::default(),
            relays: Mutex::default(),
            leases: Arc::new(Mutex::new(Leases::read(folder))),
            asking: Mutex::default(),
            batches: Mutex::default(),
            unreadable: Mutex::default(),
            zones: Mutex::default(),
            clock: SharedClock::default(),
            state: Mutex::default(),
            unwritten: Mutex::default(),
        };
        match sync.refresh().await {
            Ok(()) => Ok(sync),
            Err(error @ StoreError::OtherDatabase { .. }) => Err(error.into()),
            Err(error) => {
                let Some(kept) = address.and_then(|_| sync.read_kept()) else {
                    return Err(error.into());
                };
                tracing::warn!(accounts = kept.len(), "{error}; using the saved accounts");
                sync.know(Arc::new(kept));
                if let Err(error) = locked(&sync.journal).keep_opened() {
                    tracing::error!(%error, "cannot keep what the usage journal held; some bytes may not count");
                }
                locked(&sync.state).0 = Some(error.to_string());
                Ok(sync)
            }
        }
    }

    /// All accounts as they are known now.
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time by which periods begin and end: this machine's, or that of a database that other
    /// relays use, too, where the two are more than a minute apart.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whose user and password these are, from an address.
    pub async fn verify_login(&self, user: &str, password: &str, from: IpAddr) -> LoginVerdict {
        self.attempts.verify_login(&self.directory(), user, password, from).await
    }

    /// An account used so many bytes more.
    pub fn used(&self, account: AccountId, down: u64, up: u64) {
        let begun = self.begun(account);
        locked(&self.journal).add(account, begun, down, up);
    }

    /// What this relay may carry for an account in this period; `None` without a quota. Alone, all
    /// of it; of a shared quota its grant, and a slice ahead while there may be more.
    pub fn part(&self, account: AccountId) -> Option<QuotaShare> {
        let directory = self.directory();
        let quota = directory.get(account)?.attributes.quota_bytes()?.as_u64();
        let begun = self.begun(account);
        // held until the lease has heard of it: a new identity changes both at once
        let journal = locked(&self.journal);
        let (down, up) = journal.used(account, begun);
        let used = down.saturating_add(up);
        if self.address.is_none() {
            return Some(QuotaShare { may: quota, used, more: false });
        }
        let is_away = locked(&self.state).0.is_some();
        let mut leases = locked(&self.leases);
        let lease = leases.of((account, begun), quota, used);
        let may = lease.may().min(quota);
        Some(QuotaShare { may, used, more: may < quota && !lease.is_exhausted() && !is_away })
    }

    /// How it stands.
    pub fn status(&self) -> SyncStatus {
        let directory = self.directory();
        let (away, heard) = locked(&self.state).clone();
        let (unreadable, unreadable_first) = {
            let unreadable = locked(&self.unreadable);
            let all = unreadable.accounts();
            (all.len(), all.first().map(ToString::to_string))
        };
        SyncStatus {
            database: if self.address.is_some() { "postgresql" } else { "sqlite" },
            away,
            heard,
            accounts: directory.len().saturating_sub(unreadable),
            unreadable,
            unreadable_first,
            version: directory.version(),
            unsettled: locked(&self.journal).unsettled().len(),
            unwritten: locked(&self.unwritten).why(),
            relays: locked(&self.relays).clone(),
        }
    }

    /// Where journal and embedded database are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The database, for whoever manages accounts; changes are seen here at the next look. Fails
    /// while it is away.
    pub async fn database(&self) -> Result<Store, StoreError> {
        self.store().await
    }

    /// Writes, looks and settles until it is dropped.
    pub async fn run(&self) {
        // the journal waits for neither the disk nor the database
        tokio::join!(self.write(), self.replace(), self.watch());
    }

    /// Writes and settles what is left. Nothing is lost when the database is away: it is settled next time. A disk or a
    /// database that hangs is given up.
    pub async fn close(&self) {
        if let Err(error) = at_end(self.write_at_end()).await {
            tracing::error!(%error, "cannot write the last second of usage");
        }
        match self.settle().await {
            Ok(true) => {}
            Ok(false) => {
                let left = locked(&self.journal).unsettled().len();
                tracing::warn!(left, "the database is slow; the rest is settled at the next start");
            }
            Err(error) => {
                tracing::warn!("usage is settled at the next start because of: {error}");
            }
        }
        if let Err(error) = at_end(self.write_grants()).await {
            tracing::error!(%error, "cannot write the grants of quotas");
        }
        let store = locked(&self.store).take();
        if let Some(store) = store {
            store.close().await;
        }
    }

    async fn watch(&self) {
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // refused: by a database that is there and takes nothing, as on a disk that is full or read-only
        let (mut is_settled, mut is_refused) = (true, false);
        let (mut settling, mut leasing) = (Pause::default(), Pause::default());
        for count in 1_u32.. {
            tick.tick().await;
            let now = self.now().as_second();
            let looked = async {
                self.refresh().await?;
                if (count % SETTLE == 0 || !is_settled) && settling.is_over(Instant::now()) {
                    is_settled = true;
                    let settled = self.settle().await;
                    settling.on_answer(&settled, Instant::now());
                    let is_late = matches!(settled, Err(StoreError::Late(_)));
                    is_refused = settled.is_err() && !is_late;
                    is_settled = settled?;
                }
                if leasing.is_over(Instant::now()) {
                    let leased = self.lease().await;
                    leasing.on_answer(&leased, Instant::now());
                    leased?;
                }
                Ok::<(), StoreError>(())
            };
            let looked = looked.await;
            match looked {
                // nobody waits for a grant meanwhile, and a look that only reads tells nothing of writing
                Ok(()) if leasing.is_begun() || is_refused => locked(&self.state).1 = Some(now),
                Ok(()) => {
                    let before = std::mem::replace(&mut *locked(&self.state), (None, Some(now)));
                    if before.0.is_some() {
                        tracing::info!("accounts' database is reachable again");
                    }
                }
                Err(error) => {
                    let before = locked(&self.state).0.replace(error.to_string());
                    if before.is_none() {
                        tracing::warn!(
                            "accounts' database is unreachable, using known accounts: {error}"
                        );
                    }
                    self.leave_read_only(&error).await;
                }
            }
        }
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        let store = self.store().await?;
        if !self.clock.is_known() {
            self.hear_clock(&store).await?;
        }
        let known = self.directory().version();
        let first = locked(&self.state).1.is_none();
        self.log_unreadable();
        let again = locked(&self.unreadable).wants(Instant::now());
        let again = again || locked(&self.presence).rereads();
        if !first && !again && in_time(store.version()).await? == known {
            return Ok(());
        }
        let AccountTable { version, mut accounts, unreadable } = store.accounts().await?;
        let now = self.now().as_second();
        accounts.extend(unreadable.iter().filter_map(UnreadableAccount::barred));
        locked(&self.unreadable).on_read(unreadable, Instant::now());
        self.log_unreadable();
        let directory = Arc::new(Directory::new(version, accounts));
        self.know(Arc::clone(&directory));
        locked(&self.presence).on_read();
        locked(&self.state).1 = Some(now);
        if store.is_shared()
            && let Err(error) = self.keep(directory).await
        {
            tracing::warn!(%error, "cannot save accounts for a start without the database");
        }
        Ok(())
    }

    fn know(&self, directory: Arc<Directory>) {
        for line in locked(&self.zones).lines(directory.accounts()) {
            tracing::warn!("{line}");
        }
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = directory;
    }

    fn log_unreadable(&self) {
        for line in locked(&self.unreadable).lines(Instant::now()) {
            match line {
                Ok(line) => tracing::info!("{line}"),
                Err(line) => tracing::warn!("{line}"),
            }
        }
    }

    async fn hear_clock(&self, store: &Store) -> Result<(), StoreError> {
        let showed = in_time(store.clock()).await?;
        if let Some(why) = showed.and_then(|showed| self.clock.on_heard(showed)) {
            tracing::warn!("{why}");
        }
        Ok(())
    }

    fn begun(&self, account: AccountId) -> i64 {
        self.begun_in(&self.directory(), account)
    }

    /// When the account's period began; a month of UTC for one that is not known any more.
    fn begun_in(&self, directory: &Directory, account: AccountId) -> i64 {
        let calendar = match directory.get(account) {
            Some(known) => known.attributes.calendar_here(),
            None => Attributes::default().calendar_here(),
        };
        calendar.begun(self.now()).as_second()
    }
}
