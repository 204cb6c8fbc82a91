-- The tables of meshddns, version 1; store.go has what later versions add. One file holds everything: what was
-- configured, who has which name, what stands at the providers, and the zones
-- of the built-in DNS server.
--
-- Times are RFC 3339 in UTC with milliseconds, so their order as text is their
-- order in time. Ids are UUIDv7: new rows go to the end of each index.

-- What belongs to the database itself: one row.
CREATE TABLE appliance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    owner      TEXT    NOT NULL,          -- 12 hex digits; marks the values in DNS that are ours
    dns_serial INTEGER NOT NULL DEFAULT 1 -- SOA serial of the built-in zones, grows with every change
) STRICT;

-- The DDNS configuration: no row, or one.
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
    updated_at        TEXT    NOT NULL
) STRICT;

-- Registered DNS services.
CREATE TABLE services (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    config     TEXT NOT NULL, -- as registered; anything, for older rows
    zone       TEXT NOT NULL, -- config's domain as DNS has it: A-labels, lower case, no final dot; '' for none
    provider   TEXT NOT NULL, -- config's provider, '' to use the configuration's
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Finds the built-in zone of a DNS query.
CREATE INDEX services_by_zone ON services (zone, provider);

-- Reserved prefixes.
CREATE TABLE usages (
    id            TEXT    NOT NULL PRIMARY KEY,
    provider_id   TEXT    NOT NULL REFERENCES services (id) ON DELETE RESTRICT,
    usage_type    TEXT    NOT NULL,
    prefix_mode   TEXT    NOT NULL CHECK (prefix_mode IN ('auto', 'custom')),
    record_prefix TEXT    NOT NULL, -- as typed
    record_type   TEXT    NOT NULL,
    description   TEXT    NOT NULL,
    is_exclusive  INTEGER NOT NULL CHECK (is_exclusive IN (0, 1)),
    txt_endpoints TEXT    NOT NULL, -- JSON array of strings; '[]' to use the service's
    created_at    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- NOCASE folds A-Z and nothing else, as DNS does (RFC 4343).
CREATE INDEX usages_by_prefix ON usages (provider_id, record_prefix COLLATE NOCASE);

-- However many requests race, one custom prefix is given once. An automatic
-- prefix may repeat: it belongs to its network by construction.
CREATE UNIQUE INDEX usages_custom_prefix ON usages (provider_id, record_prefix COLLATE NOCASE)
    WHERE prefix_mode = 'custom';

-- Which network a usage belongs to.
CREATE TABLE bindings (
    id          TEXT    NOT NULL PRIMARY KEY,
    network_id  INTEGER NOT NULL, -- unsigned 64 bits as two's complement: 2^64-1 is stored as -1
    usage_id    TEXT    NOT NULL UNIQUE REFERENCES usages (id) ON DELETE CASCADE,
    provider_id TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('active', 'releasing'))
) STRICT, WITHOUT ROWID;

CREATE INDEX bindings_by_network ON bindings (network_id, usage_id);

-- What stands, or may stand, at the providers. A row is written before the
-- provider is called, and goes only when the value is known to be withdrawn:
-- a stop at any moment leaves a row that says where to look.
CREATE TABLE publications (
    name          TEXT    NOT NULL, -- full record name, lower case, no final dot
    provider      TEXT    NOT NULL,
    endpoint      TEXT    NOT NULL,
    access_key_id TEXT    NOT NULL, -- of the key that it was last published with
    network_id    INTEGER,          -- as in bindings; NULL: the configuration's own record
    held_network_id INTEGER,        -- whose value stood there before, until the new one is published
    value         TEXT    NOT NULL, -- the wanted value; '' when it is to be withdrawn
    written       INTEGER NOT NULL CHECK (written IN (0, 1)), -- a value of ours may stand there
    state         TEXT    NOT NULL CHECK (state IN ('pending', 'published', 'failed', 'conflict', 'withdrawing')),
    code          TEXT    NOT NULL, -- why it failed or conflicts, '' if it does not
    detail        TEXT    NOT NULL,
    attempts      INTEGER NOT NULL,
    at            TEXT    NOT NULL,
    PRIMARY KEY (name, provider, endpoint)
) STRICT, WITHOUT ROWID;

-- TXT records of the zones that the built-in DNS server answers for. The name
-- begins at the root ('com.example.office._mesh'), in lower case, so the names
-- below one name stand together: an empty non-terminal is found by one search.
CREATE TABLE zone_records (
    name TEXT    NOT NULL,
    data BLOB    NOT NULL, -- RDATA (RFC 1035, section 3.3.14)
    ttl  INTEGER NOT NULL, -- seconds
    PRIMARY KEY (name, data)
) STRICT, WITHOUT ROWID;
