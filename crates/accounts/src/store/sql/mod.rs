//! Every statement there is. Both databases read `$1` as the first value.

/// The schema's versions, oldest first: number, name, text.
pub(super) const MIGRATIONS: [(i64, &str, &str); 4] = [
    (1, "accounts", include_str!("0001_accounts.sql")),
    (2, "peers", include_str!("0002_peers.sql")),
    (3, "runs", include_str!("0003_runs.sql")),
    (4, "periods", include_str!("0004_periods.sql")),
];

/// For SQLite connections: readers go on beside a writer, commits survive the process, and the file
/// a power cut, if not the last commits.
pub(super) const SQLITE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
     PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000";
/// For PostgreSQL connections: a backend that waits does not see that its client left. So it gives up by itself, for a
/// lock before the client does.
pub(super) const POSTGRESQL: &str = "SET lock_timeout = 4000; SET statement_timeout = 30000; \
     SET idle_in_transaction_session_timeout = 10000";

pub(super) const VERSION: &str = "SELECT value FROM counter WHERE name = 'version'";
/// A number that no other database has.
pub(super) const IDENTITY: &str = "SELECT value FROM counter WHERE name = 'identity'";
/// Not while the table is empty, as when a backup is brought back: that has its own.
pub(super) const IDENTIFY: &str = "INSERT INTO counter (name, value) \
     SELECT 'identity', CAST($1 AS BIGINT) FROM counter WHERE name = 'version' \
     ON CONFLICT (name) DO NOTHING";
/// SQLite's last commits outlive a power cut only once they are in the file.
pub(super) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// The first statement of every change: it also lets one writer in at a time, in both databases.
pub(super) const CHANGED: &str = "UPDATE counter SET value = value + 1 WHERE name = 'version'";
/// A database that was brought back from a backup has usage of numbers that it does not remember to have given.
pub(super) const NEXT_ACCOUNT: &str = "UPDATE counter SET value = 1 + \
     CASE WHEN (SELECT COALESCE(MAX(account), 0) FROM traffic) > value \
     THEN (SELECT MAX(account) FROM traffic) ELSE value END \
     WHERE name = 'account' RETURNING value";

/// PostgreSQL's clock in seconds since 1970; SQLite's is this machine's.
pub(super) const CLOCK: &str = "SELECT CAST(EXTRACT(EPOCH FROM now()) AS BIGINT)";

/// The next accounts after a number, and how many at most.
pub(super) const ACCOUNTS: &str =
    "SELECT id, name, attributes FROM account WHERE id > $1 ORDER BY id LIMIT $2";
/// Devices of accounts after a number, up to another.
pub(super) const DEVICES: &str = "SELECT account, name, kind, identity, hash FROM device \
     WHERE account > $1 AND account <= $2 ORDER BY account, name";
pub(super) const ACCOUNT: &str = "SELECT id, name, attributes FROM account WHERE name = $1";
pub(super) const NUMBERS: &str = "SELECT id FROM account WHERE id > $1 ORDER BY id LIMIT $2";
pub(super) const ACCOUNT_OF: &str = "SELECT id, name, attributes FROM account WHERE id = $1";
pub(super) const ITS_DEVICES: &str =
    "SELECT account, name, kind, identity, hash FROM device WHERE account = $1 ORDER BY name";
pub(super) const ADD_ACCOUNT: &str =
    "INSERT INTO account (id, name, attributes) VALUES ($1, $2, $3)";
/// Another account's name that differs from one by case alone.
pub(super) const SIMILAR: &str =
    "SELECT name FROM account WHERE lower(name) = lower($1) AND id <> $2";
pub(super) const SET_ACCOUNT: &str = "UPDATE account SET name = $2, attributes = $3 WHERE id = $1";
pub(super) const REMOVE_ACCOUNT: &str = "DELETE FROM account WHERE name = $1";
pub(super) const ADD_DEVICE: &str =
    "INSERT INTO device (account, name, kind, identity, hash) VALUES ($1, $2, $3, $4, $5)";
pub(super) const REMOVE_DEVICES: &str = "DELETE FROM device WHERE account = $1";

/// What a journal settled in periods that are not long over, as [`GRANTS`] has them: the next behind an account and its
/// period, and how many at most.
pub(super) const SETTLED: &str = concat!(
    "SELECT account, begun, down, up FROM traffic WHERE journal = $1",
    " AND (begun >= $2 OR begun = 0) AND (account, begun) > ($3, $4)",
    " ORDER BY account, begun LIMIT $5"
);

const SETTLE: &str = "INSERT INTO traffic (account, begun, journal, down, up) VALUES ";
/// Totals only grow, so saying one again, or an older one later, changes nothing.
const KEEP_LARGER: &str = " ON CONFLICT (account, begun, journal) DO UPDATE SET \
     down = CASE WHEN excluded.down > traffic.down THEN excluded.down ELSE traffic.down END, \
     up = CASE WHEN excluded.up > traffic.up THEN excluded.up ELSE traffic.up END";

/// Settles so many totals of one journal, which is `$1`; each has four values more.
pub(super) fn settle(count: usize) -> String {
    format!("{SETTLE}{}{KEEP_LARGER}", rows_of_four(count))
}

/// So many rows of four values and `$1`, which is the third.
fn rows_of_four(count: usize) -> String {
    let row = |n: usize| {
        let first = 4 * n + 2;
        format!("(${first}, ${}, $1, ${}, ${})", first + 1, first + 2, first + 3)
    };
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

pub(super) const USAGE: &str = "SELECT traffic.account AS account, account.name AS name, \
     traffic.begun AS begun, CAST(SUM(traffic.down) AS BIGINT) AS down, \
     CAST(SUM(traffic.up) AS BIGINT) AS up FROM traffic \
     LEFT JOIN account ON account.id = traffic.account WHERE traffic.begun >= $1 \
     GROUP BY traffic.account, account.name, traffic.begun ORDER BY traffic.account, traffic.begun";

/// A row's own columns on the right are those of before.
pub(super) const SEEN: &str = "INSERT INTO relay (id, name, version, seen, run) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
     version = excluded.version, run_before = relay.run, seen_before = relay.seen, \
     run = excluded.run, seen = excluded.seen RETURNING run_before, seen_before";
pub(super) const RELAYS: &str = "SELECT id, name, version, seen FROM relay ORDER BY name, id";

/// A relay's grants in periods that are not long over; one that never ends began in 1970.
pub(super) const GRANTS: &str = "SELECT account, begun, granted FROM lease \
     WHERE relay = $1 AND (begun >= $2 OR begun = 0)";

/// Grants that no query finds any more, but for periods that never end.
pub(super) const TIDY_GRANTS: &str = "DELETE FROM lease WHERE (account, begun, relay) IN \
     (SELECT account, begun, relay FROM lease WHERE begun < $1 AND begun <> 0 \
     ORDER BY begun, account, relay LIMIT $2)";
/// Of a relay that is not there, what it used of a quota counts as that of one that is silent.
pub(super) const TIDY_RELAYS: &str = "DELETE FROM relay WHERE id IN \
     (SELECT id FROM relay WHERE seen < $1 ORDER BY seen, id LIMIT $2)";

/// Locks so many accounts, always in the same order: two relays that ask for the same ones wait for each other in turn.
pub(super) fn lock_accounts(count: usize, shared: bool) -> String {
    let accounts: Vec<_> = (1..=count).map(|n| format!("${n}")).collect();
    let accounts = accounts.join(", ");
    match shared {
        true => format!("SELECT id FROM account WHERE id IN ({accounts}) ORDER BY id FOR UPDATE"),
        // SQLite locks no rows: the first change lets no other writer in
        false => format!("UPDATE account SET name = name WHERE id IN ({accounts}) RETURNING id"),
    }
}

/// What others hold, and what `$1` does; of relays not seen since `$2`, no more than they said they used.
const HELD: &str = "SELECT lease.account AS account, lease.begun AS begun, \
     CAST(SUM(CASE WHEN lease.relay = $1 THEN 0 WHEN relay.seen >= $2 THEN lease.granted \
     WHEN lease.used < lease.granted THEN lease.used ELSE lease.granted END) AS BIGINT) AS others, \
     CAST(SUM(CASE WHEN lease.relay = $1 THEN lease.granted ELSE 0 END) AS BIGINT) AS own \
     FROM lease LEFT JOIN relay ON relay.id = lease.relay WHERE (lease.account, lease.begun) IN ";

/// The same of so many accounts, each with its period.
pub(super) fn held(count: usize) -> String {
    let pair = |n: usize| {
        let first = 2 * n + 3;
        format!("(CAST(${first} AS BIGINT), CAST(${} AS BIGINT))", first + 1)
    };
    let pairs: Vec<_> = (0..count).map(pair).collect();
    format!("{HELD}(VALUES {}) GROUP BY lease.account, lease.begun", pairs.join(", "))
}

const LEASE: &str = "INSERT INTO lease (account, begun, relay, granted, used) VALUES ";
/// What says the same again writes nothing.
const WHERE_CHANGED: &str = " ON CONFLICT (account, begun, relay) DO UPDATE SET \
     granted = excluded.granted, used = excluded.used \
     WHERE lease.granted <> excluded.granted OR lease.used <> excluded.used";

/// Grants of one relay, which is `$1`, for so many accounts; each has four values more.
pub(super) fn grant(count: usize) -> String {
    format!("{LEASE}{}{WHERE_CHANGED}", rows_of_four(count))
}

/// What accounts used in the periods that began at one time. A relay asks this often, and what is over may be years.
pub(super) const USED_IN: &str = "SELECT traffic.account AS account, traffic.begun AS begun, \
     CAST(SUM(traffic.down) AS BIGINT) AS down, CAST(SUM(traffic.up) AS BIGINT) AS up \
     FROM traffic WHERE traffic.begun = $1 GROUP BY traffic.account, traffic.begun";
