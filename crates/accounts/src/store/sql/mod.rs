//! Every statement there is. Both databases read `$1` as the first value.

/// The schema's versions, oldest first: number, name, text.
pub(super) const MIGRATIONS: [(i64, &str, &str); 2] = [
    (1, "accounts", include_str!("0001_accounts.sql")),
    (2, "peers", include_str!("0002_peers.sql")),
];

/// For SQLite connections: readers go on beside a writer, commits survive the process, and the file
/// a power cut, if not the last commits.
pub(super) const SQLITE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
     PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000";

pub(super) const VERSION: &str = "SELECT value FROM counter WHERE name = 'version'";
/// The first statement of every change: it also lets one writer in at a time, in both databases.
pub(super) const CHANGED: &str = "UPDATE counter SET value = value + 1 WHERE name = 'version'";
pub(super) const NEXT_ACCOUNT: &str =
    "UPDATE counter SET value = value + 1 WHERE name = 'account' RETURNING value";

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
pub(super) const SET_ACCOUNT: &str = "UPDATE account SET name = $2, attributes = $3 WHERE id = $1";
pub(super) const REMOVE_ACCOUNT: &str = "DELETE FROM account WHERE name = $1";
pub(super) const ADD_DEVICE: &str =
    "INSERT INTO device (account, name, kind, identity, hash) VALUES ($1, $2, $3, $4, $5)";
pub(super) const REMOVE_DEVICES: &str = "DELETE FROM device WHERE account = $1";

const SETTLE: &str = "INSERT INTO traffic (account, begun, journal, down, up) VALUES ";
/// Totals only grow, so saying one again, or an older one later, changes nothing.
const KEEP_LARGER: &str = " ON CONFLICT (account, begun, journal) DO UPDATE SET \
     down = CASE WHEN excluded.down > traffic.down THEN excluded.down ELSE traffic.down END, \
     up = CASE WHEN excluded.up > traffic.up THEN excluded.up ELSE traffic.up END";

/// Settles so many totals of one journal, which is `$1`; each has four values more.
pub(super) fn settle(count: usize) -> String {
    let row = |n: usize| {
        let first = 4 * n + 2;
        format!("(${first}, ${}, $1, ${}, ${})", first + 1, first + 2, first + 3)
    };
    let rows: Vec<_> = (0..count).map(row).collect();
    format!("{SETTLE}{}{KEEP_LARGER}", rows.join(", "))
}

pub(super) const USAGE: &str = "SELECT traffic.account AS account, account.name AS name, \
     traffic.begun AS begun, CAST(SUM(traffic.down) AS BIGINT) AS down, \
     CAST(SUM(traffic.up) AS BIGINT) AS up FROM traffic \
     LEFT JOIN account ON account.id = traffic.account WHERE traffic.begun >= $1 \
     GROUP BY traffic.account, account.name, traffic.begun ORDER BY traffic.account, traffic.begun";

pub(super) const SEEN: &str = "INSERT INTO relay (id, name, version, seen) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, \
     seen = excluded.seen";
pub(super) const RELAYS: &str = "SELECT id, name, version, seen FROM relay ORDER BY name, id";

/// One relay asks at a time: the account's row is locked until the end of the transaction.
pub(super) const LOCK_ACCOUNT: &str = "UPDATE account SET name = name WHERE id = $1";
/// What others hold; of relays not seen since `$4`, no more than they said they used.
pub(super) const OTHERS: &str = "SELECT CAST(COALESCE(SUM(CASE WHEN relay.seen >= $4 \
     THEN lease.granted WHEN lease.used < lease.granted THEN lease.used ELSE lease.granted END), 0) \
     AS BIGINT) AS others FROM lease LEFT JOIN relay ON relay.id = lease.relay \
     WHERE lease.account = $1 AND lease.begun = $2 AND lease.relay <> $3";
pub(super) const GRANTED: &str =
    "SELECT granted FROM lease WHERE account = $1 AND begun = $2 AND relay = $3";
pub(super) const GRANT: &str = "INSERT INTO lease (account, begun, relay, granted, used) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account, begun, relay) DO UPDATE SET \
     granted = excluded.granted, used = excluded.used";
