-- Today's tables of meshddns. One file holds everything: the
-- configuration, the reserved names, the work that is due, the published values,
-- and the zones of the built-in DNS server.
--
-- Times for answers are RFC 3339 in UTC with milliseconds. Times that SQL compares
-- (due, look_at, ..._at as INTEGER) are milliseconds since 1970. Names are full
-- domain names in DNS form: A-labels, lower case, no final dot. Ids in answers are
-- UUIDs.

-- Facts about the database itself: one row.
CREATE TABLE appliance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    owner      TEXT    NOT NULL,             -- 12 hex digits; marks the values in DNS that are ours
    ipv4       TEXT    NOT NULL DEFAULT '',  -- this host's last known public addresses
    ipv6       TEXT    NOT NULL DEFAULT '',
    dns_hosts  TEXT    NOT NULL DEFAULT '',  -- the names of the DNS server that secondaries were last sent
    seal       TEXT    NOT NULL DEFAULT ''   -- the key with which all secrets are sealed: 8 hex digits of its SHA-256; '' not sealed; '*' behind it: old octets are not erased yet
, term INTEGER NOT NULL DEFAULT 0) STRICT; -- term: of the machine that wrote last (-term); 0 none

-- The last known addresses of the named sources (-addr).
CREATE TABLE addresses (
    source TEXT NOT NULL PRIMARY KEY,
    ipv4   TEXT NOT NULL, -- '' none
    ipv6   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Owners of lost databases, whose values count as ours.
CREATE TABLE adopted (
    owner TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- The accounts at providers. A row never changes: another secret is another account.
-- An account without a configuration, service or place is deleted with its key.
-- In a sealed file the secret is bound to the other members, and the hash is an HMAC.
CREATE TABLE accounts (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    provider          TEXT NOT NULL,
    endpoint          TEXT NOT NULL, -- in its normal form
    access_key_id     TEXT NOT NULL,
    access_key_secret TEXT NOT NULL, -- '': not known
    key_hash          TEXT NOT NULL, -- hex SHA-256 of the secret; '': not known
    UNIQUE (provider, endpoint, access_key_id, key_hash)
) STRICT;

-- The DDNS configuration: no row or one row.
CREATE TABLE configuration (
    id                INTEGER PRIMARY KEY CHECK (id = 1),
    provider          TEXT    NOT NULL,
    access_key_id     TEXT    NOT NULL,
    access_key_secret TEXT    NOT NULL,
    endpoint          TEXT    NOT NULL,
    domain            TEXT    NOT NULL, -- as typed
    txt_record_name   TEXT    NOT NULL,
    sync_mode         TEXT    NOT NULL,
    retry_interval    INTEGER,          -- seconds; NULL: not given
    max_retries       INTEGER,          -- NULL: not given, which is not 0 (none)
    enabled           INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    txt_endpoints     TEXT    NOT NULL, -- JSON array of strings
    updated_at        TEXT    NOT NULL,
    zone              TEXT    NOT NULL, -- domain as DNS has it
    name              TEXT    NOT NULL, -- of its record
    account           INTEGER NOT NULL REFERENCES accounts (id)
) STRICT;

CREATE INDEX configuration_by_account ON configuration (account);

-- Registered DNS services. The other columns repeat what the program needs of config: formats is a JSON array
-- of strings, checking a JSON object, '' for none.
CREATE TABLE services (
    id            TEXT NOT NULL PRIMARY KEY,
    name          TEXT NOT NULL,
    config        TEXT NOT NULL, -- as registered; anything, for older rows
    domain        TEXT,          -- as typed, '' for none; NULL: config is not a JSON object
    zone          TEXT NOT NULL, -- domain as DNS has it; '' for none
    zone_key      TEXT NOT NULL, -- zone with its labels from the root, as in zone_records
    provider      TEXT NOT NULL, -- '' to use the configuration's
    txt_endpoints TEXT NOT NULL, -- JSON array of strings
    account       INTEGER REFERENCES accounts (id), -- NULL: none of its own
    usage_count   INTEGER NOT NULL DEFAULT 0,       -- kept by triggers
    created_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL
, formats TEXT NOT NULL DEFAULT '[]', checking TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;

-- Finds the built-in zone of a DNS query.
CREATE INDEX services_by_zone ON services (zone, provider);
CREATE INDEX services_below ON services (provider, zone_key);
CREATE INDEX services_within ON services (zone_key);
CREATE INDEX services_by_account ON services (account, updated_at) WHERE account IS NOT NULL;
CREATE INDEX services_checked ON services (id) WHERE checking <> '';

-- Reserved prefixes. Package mesh says who owns a name: a usage that waits for its name has what has it in rival,
-- 'n=<network>' or 'configuration'.
CREATE TABLE usages (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    provider_id   TEXT    NOT NULL REFERENCES services (id) ON DELETE RESTRICT,
    usage_type    TEXT    NOT NULL,
    prefix_mode   TEXT    NOT NULL CHECK (prefix_mode IN ('auto', 'custom')),
    record_prefix TEXT    NOT NULL, -- as typed
    record_type   TEXT    NOT NULL,
    description   TEXT    NOT NULL,
    is_exclusive  INTEGER NOT NULL CHECK (is_exclusive IN (0, 1)),
    txt_endpoints TEXT    NOT NULL, -- JSON array of strings; '[]' to use the service's
    name          TEXT    NOT NULL, -- full record name; it cannot change, for the service's zone cannot
    created_at    TEXT    NOT NULL,
    state         TEXT    NOT NULL DEFAULT 'pending' CHECK (state IN
        ('none', 'pending', 'published', 'failed', 'conflict', 'withdrawing')), -- of its publishing, as it is told
    place         INTEGER NOT NULL DEFAULT 0, -- id of the place that the state is about; 0: none
    rival         TEXT    NOT NULL DEFAULT '' -- in a conflict of two networks, the network that has the name
, tenant INTEGER NOT NULL DEFAULT 0) STRICT; -- tenant: 1: a token of its service only has reserved it

-- A service gives each custom prefix once, even to concurrent requests. The prefix is
-- compared as part of the name, in lower case as in DNS (RFC 4343). A prefix that begins
-- with '_mesh' is automatic and may repeat: it encodes its network.
CREATE UNIQUE INDEX usages_by_name ON usages
    (name, provider_id, iif(substr(record_prefix, 1, 5) = '_mesh' COLLATE NOCASE, id, ''));

CREATE INDEX usages_by_service ON usages (provider_id, seq);
CREATE INDEX usages_by_state ON usages (state, seq);

-- The network of each usage. seq is the usage's.
CREATE TABLE bindings (
    seq         INTEGER PRIMARY KEY REFERENCES usages (seq) ON DELETE CASCADE,
    id          TEXT    NOT NULL,
    network_id  INTEGER NOT NULL, -- unsigned 64 bits as two's complement: 2^64-1 is stored as -1
    usage_id    TEXT    NOT NULL,
    provider_id TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('active', 'releasing'))
) STRICT;

CREATE INDEX bindings_by_network ON bindings (network_id, seq);

-- What a usage has beyond the defaults of its service. A usage without a row has none of it.
CREATE TABLE usage_options (
    usage    INTEGER PRIMARY KEY REFERENCES usages (seq) ON DELETE CASCADE,
    formats  TEXT NOT NULL, -- JSON array of strings; '[]' to use the service's
    checking TEXT NOT NULL, -- JSON object: how its endpoints are checked; '' to use the service's
    peer_id  TEXT NOT NULL  -- of its own endpoints; '' none
) STRICT;

-- Rights of nodes to renew the endpoints of one slot of a usage.
CREATE TABLE leases (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE,
    usage      INTEGER NOT NULL REFERENCES usages (seq) ON DELETE CASCADE,
    slot       TEXT    NOT NULL,
    token      BLOB    NOT NULL UNIQUE, -- SHA-256 of the token
    schemes    TEXT    NOT NULL, -- JSON array of the allowed schemes; '[]' all
    cidrs      TEXT    NOT NULL, -- JSON array of the allowed address ranges; '[]' all
    ttl        INTEGER NOT NULL, -- seconds from a renewal to the end
    template   TEXT    NOT NULL, -- JSON array of endpoints with {ip}; '[]' those of the usage
    peer_id    TEXT    NOT NULL, -- '' none
    endpoints  TEXT    NOT NULL, -- JSON array: what is published; '[]' before the first renewal and after the end
    renewed_at INTEGER NOT NULL, -- rounded down, because not every renewal is written; 0 never
    renewed_by TEXT    NOT NULL, -- IP address of the last renewal that was written; '' none
    acme       INTEGER NOT NULL, -- 1: may put challenges; 2: has put one
    UNIQUE (usage, slot)
) STRICT;

-- Challenges of ACME authorities (RFC 8555, section 8.4), which nodes have put; updated: 1: by the call of acme-dns.
CREATE TABLE challenges (
    seq    INTEGER PRIMARY KEY,
    usage  INTEGER NOT NULL REFERENCES usages (seq) ON DELETE CASCADE,
    lease  INTEGER NOT NULL REFERENCES leases (seq) ON DELETE CASCADE,
    value  TEXT    NOT NULL, -- of the TXT record
    put_at INTEGER NOT NULL, updated INTEGER NOT NULL DEFAULT 0,
    UNIQUE (lease, value)
) STRICT;

CREATE INDEX challenges_by_usage ON challenges (usage);
CREATE INDEX challenges_by_age ON challenges (put_at);

-- Endpoints that a check has found dead. They are not published.
CREATE TABLE dead_endpoints (
    usage    INTEGER NOT NULL REFERENCES usages (seq) ON DELETE CASCADE,
    endpoint TEXT    NOT NULL, -- with its address
    since    INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (usage, endpoint)
) STRICT, WITHOUT ROWID;

-- Every name that is wanted, or that may have a value of ours. The transaction of a
-- change also marks the names that are due because of it.
CREATE TABLE names (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL, -- grows with every change of what is wanted here
    due     INTEGER,          -- when to work on it; NULL: when a pass comes by
    lane    TEXT    NOT NULL, -- the queue in which it is due: see package reconcile
    pass    INTEGER NOT NULL, -- the last pass in which it was worked on because it was due
    look    INTEGER,          -- when a place here is to be looked at once more; NULL: never
    asked   INTEGER NOT NULL DEFAULT 1 -- the version of the last change that neither a node nor a check has caused
) STRICT, WITHOUT ROWID;

CREATE INDEX names_due ON names (lane, due) WHERE due IS NOT NULL;
CREATE INDEX names_look ON names (look) WHERE look IS NOT NULL;

-- Services whose names all become due, a batch at a time.
CREATE TABLE marks (
    service_id TEXT    NOT NULL PRIMARY KEY,
    after      INTEGER NOT NULL -- seq: up to here they are
) STRICT, WITHOUT ROWID;

-- Values that are, or may be, at the providers. A row is written before the call of
-- the provider, and deleted only when the value is known to be gone. After a crash
-- at any moment the rows tell where to look.
CREATE TABLE places (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL,
    owner     TEXT    NOT NULL DEFAULT '', -- owner name of a record in another format; '' for the TXT record of the name
    type      TEXT    NOT NULL DEFAULT '', -- of that record: TXT, A, AAAA or SRV
    account   INTEGER NOT NULL REFERENCES accounts (id),
    zone      TEXT    NOT NULL, -- apex; '' when it is not found yet
    zone_id   TEXT    NOT NULL, -- what the provider tells it by from others of its name
    state     TEXT    NOT NULL CHECK (state IN
        ('pending', 'published', 'failed', 'conflict', 'withdrawing', 'leftover', 'withdrawn')),
    standing  TEXT    NOT NULL, -- the value or the set of values that stands there as far as is known; '' none
    doubt     TEXT    NOT NULL, -- the value of the last write of unknown outcome; '*' before it: not the only one
    gone      TEXT    NOT NULL DEFAULT '', -- of a record in another format: values that stood, until a second look sees none of them; '' none
    look_at   INTEGER NOT NULL, -- when to look here once more; 0 never
    disturbed INTEGER NOT NULL, -- how often in a row somebody with our mark had changed it
    code      TEXT    NOT NULL, -- why it is not as it should be, '' if it is
    detail    TEXT    NOT NULL,
    key_of    TEXT    NOT NULL, -- whose key met it: 'configuration', 'service <id>', 'nothing'; '' no key
    attempts  INTEGER NOT NULL,
    at        TEXT    NOT NULL, -- of the last news
    since     TEXT    NOT NULL, -- of the state
    UNIQUE (name, owner, type, account, zone)
) STRICT;

CREATE INDEX places_by_account ON places (account, zone);
CREATE INDEX places_left ON places (id) WHERE state = 'leftover';

-- Values without a mark that may be from before a restore: no place knows them. They are
-- leftovers that a person adopts or forgets. Their ids follow those of places.
CREATE TABLE unmarked (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    zone    TEXT    NOT NULL,
    zone_id TEXT    NOT NULL,
    value   TEXT    NOT NULL, -- as places.standing
    since   TEXT    NOT NULL,
    UNIQUE (owner, type, account, zone)
) STRICT;

CREATE INDEX unmarked_by_account ON unmarked (account);
INSERT INTO sqlite_sequence VALUES ('unmarked', 4503599627370496);

-- The pass over all names: at most one runs at a time. One row.
CREATE TABLE pass (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    number       INTEGER NOT NULL, -- of the pass that runs, or ran last
    requested    TEXT    NOT NULL, -- what asks for a new one; '' nothing
    requested_at INTEGER NOT NULL,
    running      TEXT    NOT NULL, -- JSON: how far it is, and its report so far; '' none runs
    last         TEXT    NOT NULL  -- JSON: report of the last whole one; '' none
, swept INTEGER NOT NULL DEFAULT 0) STRICT; -- swept: seq of the last event when a sweep had been through all zones

-- Numbers of rows. Triggers keep them, so that no query counts rows.
CREATE TABLE totals (
    what  TEXT    NOT NULL PRIMARY KEY, -- 'services', a state of usages, or 'leftover' and 'withdrawn' for places
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER services_counted AFTER INSERT ON services BEGIN
    INSERT INTO totals VALUES ('services', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER services_discounted AFTER DELETE ON services BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'services';
END;
CREATE TRIGGER usages_counted AFTER INSERT ON usages BEGIN
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
    UPDATE services SET usage_count = usage_count + 1 WHERE id = NEW.provider_id;
END;
CREATE TRIGGER usages_discounted AFTER DELETE ON usages BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
    UPDATE services SET usage_count = usage_count - 1 WHERE id = OLD.provider_id;
END;
CREATE TRIGGER usages_recounted AFTER UPDATE OF state ON usages WHEN OLD.state <> NEW.state BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER places_counted AFTER INSERT ON places WHEN NEW.state IN ('leftover', 'withdrawn') BEGIN
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER places_discounted AFTER DELETE ON places WHEN OLD.state IN ('leftover', 'withdrawn') BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
END;
CREATE TRIGGER places_unstated AFTER UPDATE OF state ON places WHEN OLD.state <> NEW.state AND OLD.state IN ('leftover', 'withdrawn') BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
END;
CREATE TRIGGER places_stated AFTER UPDATE OF state ON places WHEN OLD.state <> NEW.state AND NEW.state IN ('leftover', 'withdrawn') BEGIN
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER unmarked_counted AFTER INSERT ON unmarked BEGIN
    INSERT INTO totals VALUES ('leftover', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER unmarked_discounted AFTER DELETE ON unmarked BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'leftover';
END;

-- 'leases' is the number of all leases, 'live leases' of those with endpoints.
CREATE TRIGGER leases_counted AFTER INSERT ON leases BEGIN
    INSERT INTO totals VALUES ('leases', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER leases_discounted AFTER DELETE ON leases BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'leases' OR what = 'live leases' AND OLD.endpoints <> '[]';
END;
CREATE TRIGGER leases_recounted AFTER UPDATE OF endpoints ON leases WHEN (OLD.endpoints = '[]') <> (NEW.endpoints = '[]') BEGIN
    INSERT INTO totals VALUES ('live leases', 1) ON CONFLICT DO UPDATE SET count = count + iif(NEW.endpoints = '[]', -1, 1);
END;

-- Records of the zones of the built-in DNS server. The name begins at the root
-- ('com.example.office._mesh'), so that the names below one name are adjacent: one
-- search finds an empty non-terminal.
CREATE TABLE zone_records (
    name TEXT    NOT NULL,
    type INTEGER NOT NULL, -- 1 A, 16 TXT, 28 AAAA, 33 SRV
    data BLOB    NOT NULL, -- RDATA in wire form, not compressed
    ttl  INTEGER NOT NULL, -- seconds; one for all records of a name and a type
    PRIMARY KEY (name, type, data)
) STRICT, WITHOUT ROWID;

-- SOA serials of the built-in zones (RFC 1982): every change of a zone increases its
-- serial. A row stays after its zone is deleted, so that a zone that comes back continues.
CREATE TABLE zone_serials (
    zone     TEXT    NOT NULL PRIMARY KEY,
    zone_key TEXT    NOT NULL UNIQUE, -- the zone with the labels from the root on
    serial   INTEGER NOT NULL CHECK (serial BETWEEN 0 AND 4294967295)
) STRICT, WITHOUT ROWID;

-- The last changes of each built-in zone, for its secondaries (RFC 1995). A change of the
-- zone that is not here leaves a gap between two serials.
CREATE TABLE zone_journal (
    id            INTEGER PRIMARY KEY,
    zone          TEXT    NOT NULL,
    serial_before INTEGER NOT NULL,
    serial        INTEGER NOT NULL,
    removed       BLOB    NOT NULL, -- records in wire form, not compressed
    added         BLOB    NOT NULL
) STRICT;

CREATE INDEX zone_journal_by_zone ON zone_journal (zone, id);

-- The name servers that take the built-in zones from this one.
CREATE TABLE secondaries (
    id            TEXT NOT NULL PRIMARY KEY,
    address       TEXT NOT NULL, -- IP address and port
    key_name      TEXT NOT NULL, -- of the TSIG key; '' none
    key_secret    TEXT NOT NULL, -- base64
    key_algorithm TEXT NOT NULL,
    zones         TEXT NOT NULL, -- JSON array of names, or '*' for all
    ranges        TEXT NOT NULL  -- JSON array of address ranges from which it asks, too
, notify INTEGER NOT NULL DEFAULT 1) STRICT, WITHOUT ROWID; -- notify: 0: it is not told of changes

-- What happened, one row in the transaction of each change. The newest row is never
-- deleted, so no seq is used twice.
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    kind       TEXT    NOT NULL, -- see package events
    name       TEXT    NOT NULL, -- full record name, or the zone of a zone's event; '' none
    usage      INTEGER NOT NULL, -- seq of the usage; 0 none
    usage_id   TEXT    NOT NULL, -- '' none
    service_id TEXT    NOT NULL, -- '' none
    network_id INTEGER,          -- as in bindings
    caller     TEXT    NOT NULL, -- as in audit lines; '' the program itself
    before     TEXT    NOT NULL, -- JSON; '' nothing
    after      TEXT    NOT NULL, -- JSON; '' nothing
    detail     TEXT    NOT NULL  -- JSON object; '' nothing
) STRICT;

-- A reservation adds its row at the end of an index by numbers, but anywhere in one by
-- names or ids. So only events without a usage and the last event of each usage have those.
CREATE INDEX events_by_usage ON events (usage) WHERE usage > 0;
CREATE INDEX events_by_name ON events (name) WHERE usage = 0 OR kind = 'usage.released';
CREATE INDEX events_by_released ON events (usage_id) WHERE kind = 'usage.released';

-- Zones that do not answer, so that each is told once. A row stays until the zone answers.
CREATE TABLE zones_down (
    account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    domain  TEXT    NOT NULL,
    since   INTEGER NOT NULL,
    PRIMARY KEY (account, domain)
) STRICT, WITHOUT ROWID;

-- Where messages about events are sent.
CREATE TABLE notifications (
    id         TEXT    NOT NULL PRIMARY KEY,
    kind       TEXT    NOT NULL,
    url        TEXT    NOT NULL, -- secret: a receiver's key is a part of it
    secret     TEXT    NOT NULL,
    events     TEXT    NOT NULL, -- JSON array of kinds, which may end in '.*'
    language   TEXT    NOT NULL CHECK (language IN ('zh', 'en')),
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    revision   INTEGER NOT NULL, -- random, new with each change of the settings
    sent_seq   INTEGER NOT NULL, -- seq of the last event that is told, or need not be
    state      TEXT    NOT NULL CHECK (state IN ('ok', 'retrying', 'stopped')),
    code       TEXT    NOT NULL, -- why it is not ok, '' if it is
    message    TEXT    NOT NULL, -- what the receiver answered, in both languages
    attempts   INTEGER NOT NULL, -- failures in a row
    since      TEXT    NOT NULL, -- of the state
    next_at    INTEGER NOT NULL  -- of the next try; 0 none
) STRICT, WITHOUT ROWID;

-- Numbers of names by state, for the chart of the status page.
CREATE TABLE samples (
    at     INTEGER PRIMARY KEY,
    counts TEXT    NOT NULL -- JSON object: a number by state
) STRICT;

-- Answers to requests with an Idempotency-Key, kept for a day: of a lease only its id, without the token.
CREATE TABLE replays (
    key    TEXT    NOT NULL,
    caller TEXT    NOT NULL, -- whose token was in the request, as in audit lines; '' none was needed; '*' not known
    body   BLOB    NOT NULL, -- SHA-256 of the request's body
    answer TEXT    NOT NULL, -- JSON: its data
    at     INTEGER NOT NULL,
    PRIMARY KEY (key, caller)
) STRICT, WITHOUT ROWID;

CREATE INDEX replays_by_age ON replays (at);
