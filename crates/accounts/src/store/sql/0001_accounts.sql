-- One text for SQLite and PostgreSQL. Seconds are since 1970; bytes and numbers are BIGINT, which both have.

-- 'version' grows with every change to an account; 'account' is the last number that was given.
CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counter (name, value) VALUES ('version', 0), ('account', 0);

-- attributes: a JSON object, written by one place alone (account.rs).
CREATE TABLE account (
    id BIGINT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    attributes TEXT NOT NULL
);

-- kind: password, prefix or relay; identity: the user, the prefix, the relay.
CREATE TABLE device (
    account BIGINT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    identity TEXT NOT NULL,
    hash TEXT,
    PRIMARY KEY (account, name),
    UNIQUE (kind, identity)
);

-- What each journal counted, in totals. It outlives the account: somebody may have to pay for it.
CREATE TABLE traffic (
    account BIGINT NOT NULL,
    begun BIGINT NOT NULL,
    journal TEXT NOT NULL,
    down BIGINT NOT NULL,
    up BIGINT NOT NULL,
    PRIMARY KEY (account, begun, journal)
);

-- The relays that use this database, and when each was heard of last.
CREATE TABLE relay (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    seen BIGINT NOT NULL
);

-- Slices of quotas: what each relay was granted of an account's period, and what it said it used.
CREATE TABLE lease (
    account BIGINT NOT NULL REFERENCES account (id) ON DELETE CASCADE,
    begun BIGINT NOT NULL,
    relay TEXT NOT NULL,
    granted BIGINT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (account, begun, relay)
);
