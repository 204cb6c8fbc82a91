-- From version 2 to version 3: the tables are made anew, and filled from those
-- that were there. The tables are frozen as they were in version 3.
DROP INDEX services_by_zone;
DROP INDEX usages_by_prefix;
DROP INDEX usages_custom_prefix;
DROP INDEX bindings_by_network;
ALTER TABLE appliance RENAME TO old_appliance;
ALTER TABLE configuration RENAME TO old_configuration;
ALTER TABLE services RENAME TO old_services;
ALTER TABLE usages RENAME TO old_usages;
ALTER TABLE bindings RENAME TO old_bindings;
ALTER TABLE publications RENAME TO old_publications;

CREATE TABLE appliance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    owner      TEXT    NOT NULL,             -- 12 hex digits; marks the values in DNS that are ours
    dns_serial INTEGER NOT NULL DEFAULT 1,   -- SOA serial of the built-in zones, grows with every change
    ipv4       TEXT    NOT NULL DEFAULT '',  -- this host's last known public addresses
    ipv6       TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE adopted (
    owner TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    provider          TEXT NOT NULL,
    endpoint          TEXT NOT NULL,
    access_key_id     TEXT NOT NULL,
    access_key_secret TEXT NOT NULL, -- '': not known
    UNIQUE (provider, endpoint, access_key_id)
) STRICT;

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
) STRICT, WITHOUT ROWID;

CREATE INDEX services_by_zone ON services (zone, provider);
CREATE INDEX services_below ON services (provider, zone_key);
CREATE INDEX services_by_account ON services (account, updated_at) WHERE account IS NOT NULL;

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
    created_at    TEXT    NOT NULL
) STRICT;

CREATE INDEX usages_by_prefix ON usages (provider_id, record_prefix COLLATE NOCASE);

CREATE UNIQUE INDEX usages_custom_prefix ON usages (provider_id, record_prefix COLLATE NOCASE)
    WHERE prefix_mode = 'custom';

CREATE INDEX usages_by_service ON usages (provider_id, seq);
CREATE INDEX usages_by_name ON usages (name, seq);

CREATE TABLE bindings (
    seq         INTEGER PRIMARY KEY REFERENCES usages (seq) ON DELETE CASCADE,
    id          TEXT    NOT NULL,
    network_id  INTEGER NOT NULL, -- unsigned 64 bits as two's complement: 2^64-1 is stored as -1
    usage_id    TEXT    NOT NULL,
    provider_id TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('active', 'releasing'))
) STRICT;

CREATE INDEX bindings_by_network ON bindings (network_id, seq);

CREATE TABLE names (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL, -- grows with every change of what is wanted here
    due     INTEGER,          -- when to work on it; NULL: when a pass comes by
    lane    TEXT    NOT NULL, -- who takes it: see package reconcile
    pass    INTEGER NOT NULL  -- the last pass in which it was worked on because it was due
) STRICT, WITHOUT ROWID;

CREATE INDEX names_due ON names (lane, due) WHERE due IS NOT NULL;

CREATE TABLE marks (
    service_id TEXT    NOT NULL PRIMARY KEY,
    after      INTEGER NOT NULL -- seq: up to here they are
) STRICT, WITHOUT ROWID;

CREATE TABLE places (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL,
    account   INTEGER NOT NULL REFERENCES accounts (id),
    zone      TEXT    NOT NULL, -- apex; '' when it is not found yet
    zone_id   TEXT    NOT NULL, -- what the provider tells it by from others of its name
    state     TEXT    NOT NULL CHECK (state IN
        ('pending', 'published', 'failed', 'conflict', 'withdrawing', 'leftover', 'withdrawn')),
    standing  TEXT    NOT NULL, -- the value that stands there as far as is known; '' none
    intent    TEXT    NOT NULL, -- the value that was last to stand there; '' to withdraw
    doubt     TEXT    NOT NULL, -- a value whose write may have been made, or may still be; '*' several
    look_at   INTEGER NOT NULL, -- when to look here once more; 0 never
    disturbed INTEGER NOT NULL, -- how often in a row somebody with our mark had changed it
    code      TEXT    NOT NULL, -- why it is not as it should be, '' if it is
    detail    TEXT    NOT NULL,
    attempts  INTEGER NOT NULL,
    at        TEXT    NOT NULL, -- of the last news
    since     TEXT    NOT NULL, -- of the state
    UNIQUE (name, account, zone)
) STRICT;

CREATE INDEX places_by_account ON places (account, zone);
CREATE INDEX places_left ON places (id) WHERE state = 'leftover';

CREATE TABLE pass (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    number       INTEGER NOT NULL, -- of the pass that runs, or ran last
    requested    TEXT    NOT NULL, -- what asks for a new one; '' nothing
    requested_at INTEGER NOT NULL,
    running      TEXT    NOT NULL, -- JSON: how far it is, and its report so far; '' none runs
    last         TEXT    NOT NULL  -- JSON: report of the last whole one; '' none
) STRICT;

CREATE TABLE totals (
    what  TEXT    NOT NULL PRIMARY KEY, -- 'services', 'usages', or a state of places
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER services_counted AFTER INSERT ON services BEGIN
    INSERT INTO totals VALUES ('services', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER services_discounted AFTER DELETE ON services BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'services';
END;
CREATE TRIGGER usages_counted AFTER INSERT ON usages BEGIN
    INSERT INTO totals VALUES ('usages', 1) ON CONFLICT DO UPDATE SET count = count + 1;
    UPDATE services SET usage_count = usage_count + 1 WHERE id = NEW.provider_id;
END;
CREATE TRIGGER usages_discounted AFTER DELETE ON usages BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'usages';
    UPDATE services SET usage_count = usage_count - 1 WHERE id = OLD.provider_id;
END;
CREATE TRIGGER places_counted AFTER INSERT ON places BEGIN
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER places_discounted AFTER DELETE ON places BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
END;
CREATE TRIGGER places_recounted AFTER UPDATE OF state ON places WHEN OLD.state <> NEW.state BEGIN
    UPDATE totals SET count = count - 1 WHERE what = OLD.state;
    INSERT INTO totals VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;


INSERT INTO appliance (id, owner, dns_serial) SELECT id, owner, dns_serial FROM old_appliance;
INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '');

-- Accounts: the newest key of each, the configuration's above all. The built-in
-- server is one.
INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret)
SELECT provider,
       iif(provider = 'builtin' OR json_type(config, '$.endpoint') IS NOT 'text', '', config ->> '$.endpoint'),
       iif(provider = 'builtin' OR json_type(config, '$.access_key_id') IS NOT 'text', '', config ->> '$.access_key_id'),
       iif(provider = 'builtin' OR json_type(config, '$.access_key_secret') IS NOT 'text', '', config ->> '$.access_key_secret')
FROM old_services
WHERE provider <> '' AND json_valid(config)
ORDER BY updated_at
ON CONFLICT DO UPDATE SET access_key_secret = excluded.access_key_secret;

INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret)
SELECT provider, iif(provider = 'builtin', '', endpoint), iif(provider = 'builtin', '', access_key_id), iif(provider = 'builtin', '', access_key_secret)
FROM old_configuration
WHERE true
ON CONFLICT DO UPDATE SET access_key_secret = excluded.access_key_secret;

-- What was published with a key that nobody has any more is withdrawn with
-- another of the same address, where there is one.
INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret)
SELECT DISTINCT p.provider, p.endpoint, p.access_key_id, ''
FROM old_publications p
WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.provider = p.provider AND a.endpoint = p.endpoint);

INSERT INTO configuration
SELECT c.id, c.provider, c.access_key_id, c.access_key_secret, c.endpoint, c.domain, c.txt_record_name, c.sync_mode,
       c.retry_interval, c.max_retries, c.enabled, c.txt_endpoints, c.updated_at, c.zone, '', a.id
FROM old_configuration c
JOIN accounts a ON a.provider = c.provider AND a.endpoint = iif(c.provider = 'builtin', '', c.endpoint) AND
                   a.access_key_id = iif(c.provider = 'builtin', '', c.access_key_id);

INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
SELECT s.id, s.name, s.config,
       iif(json_valid(s.config), iif(json_type(s.config) = 'object', iif(json_type(s.config, '$.domain') = 'text', s.config ->> '$.domain', ''), NULL), NULL),
       s.zone, '', s.provider,
       iif(json_valid(s.config), iif(json_type(s.config, '$.txt_endpoints') = 'array' AND
           NOT EXISTS (SELECT 1 FROM json_each(s.config, '$.txt_endpoints') WHERE type <> 'text'), s.config -> '$.txt_endpoints', '[]'), '[]'),
       (SELECT a.id FROM accounts a
        WHERE s.provider <> '' AND json_valid(s.config) AND a.provider = s.provider AND
              a.endpoint = iif(s.provider = 'builtin' OR json_type(s.config, '$.endpoint') IS NOT 'text', '', s.config ->> '$.endpoint') AND
              a.access_key_id = iif(s.provider = 'builtin' OR json_type(s.config, '$.access_key_id') IS NOT 'text', '', s.config ->> '$.access_key_id')),
       s.created_at, s.updated_at
FROM old_services s;

INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
SELECT u.id, u.provider_id, u.usage_type, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive, u.txt_endpoints,
       '_mesh.' || lower(u.record_prefix) || '.' || s.zone, u.created_at
FROM old_usages u JOIN old_services s ON s.id = u.provider_id
ORDER BY u.id;

INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status)
SELECT u.seq, b.id, b.network_id, b.usage_id, b.provider_id, b.status
FROM usages u JOIN old_bindings b ON b.usage_id = u.id
ORDER BY u.seq;

-- What is not known to stand as it is wanted may have been written: it is in
-- doubt until it is looked at.
INSERT INTO places (name, account, zone, zone_id, state, standing, intent, doubt, look_at, disturbed, code, detail, attempts, at, since)
SELECT p.name,
       coalesce((SELECT a.id FROM accounts a WHERE a.provider = p.provider AND a.endpoint = p.endpoint AND a.access_key_id = p.access_key_id),
                (SELECT max(a.id) FROM accounts a WHERE a.provider = p.provider AND a.endpoint = p.endpoint)),
       '', '', iif(p.value = '', 'withdrawing', p.state),
       iif(p.state = 'published', p.value, ''), p.value,
       iif(p.written = 1 AND (p.state <> 'published' OR p.held_network_id IS NOT NULL), '*', ''),
       iif(p.written = 1 AND (p.state <> 'published' OR p.held_network_id IS NOT NULL), 1, 0),
       0, p.code, p.detail, p.attempts, p.at, p.at
FROM old_publications p
WHERE p.written = 1 OR p.value <> '';

INSERT INTO names (name, version, due, lane, pass) SELECT DISTINCT name, 1, NULL, '', 0 FROM usages;
INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, NULL, '', 0 FROM places WHERE true ON CONFLICT DO NOTHING;
UPDATE names SET due = 1, lane = 'look' WHERE name IN (SELECT name FROM places WHERE look_at > 0);

DROP TABLE old_bindings;
DROP TABLE old_usages;
DROP TABLE old_services;
DROP TABLE old_configuration;
DROP TABLE old_publications;
DROP TABLE old_appliance;
