-- From version 9 to version 10: records of other types and at other owner names beside
-- the TXT record of a name; options and leases of usages; dead endpoints.
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
    UNIQUE (usage, slot)
) STRICT;

-- Endpoints that a check has found dead. They are not published.
CREATE TABLE dead_endpoints (
    usage    INTEGER NOT NULL REFERENCES usages (seq) ON DELETE CASCADE,
    endpoint TEXT    NOT NULL, -- with its address
    since    INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (usage, endpoint)
) STRICT, WITHOUT ROWID;

DROP TRIGGER places_counted;
DROP TRIGGER places_discounted;
DROP TRIGGER places_unstated;
DROP TRIGGER places_stated;
DROP INDEX places_by_account;
DROP INDEX places_left;
ALTER TABLE places RENAME TO old_places;

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

INSERT INTO places (id, name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
SELECT id, name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since
FROM old_places;

-- The ids of places are shown: none is given twice.
INSERT INTO sqlite_sequence (name, seq) SELECT 'places', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'places');
UPDATE sqlite_sequence SET seq = coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name IN ('places', 'old_places')), 0) WHERE name = 'places';

DROP TABLE old_places;
CREATE INDEX places_by_account ON places (account, zone);
CREATE INDEX places_left ON places (id) WHERE state = 'leftover';

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

CREATE TRIGGER leases_counted AFTER INSERT ON leases BEGIN
    INSERT INTO totals VALUES ('leases', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER leases_discounted AFTER DELETE ON leases BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'leases' OR what = 'live leases' AND OLD.endpoints <> '[]';
END;
CREATE TRIGGER leases_recounted AFTER UPDATE OF endpoints ON leases WHEN (OLD.endpoints = '[]') <> (NEW.endpoints = '[]') BEGIN
    INSERT INTO totals VALUES ('live leases', 1) ON CONFLICT DO UPDATE SET count = count + iif(NEW.endpoints = '[]', -1, 1);
END;

ALTER TABLE zone_records RENAME TO old_zone_records;

CREATE TABLE zone_records (
    name TEXT    NOT NULL,
    type INTEGER NOT NULL, -- 1 A, 16 TXT, 28 AAAA, 33 SRV
    data BLOB    NOT NULL, -- RDATA in wire form, not compressed
    ttl  INTEGER NOT NULL, -- seconds; one for all records of a name and a type
    PRIMARY KEY (name, type, data)
) STRICT, WITHOUT ROWID;

INSERT INTO zone_records (name, type, data, ttl) SELECT name, 16, data, ttl FROM old_zone_records;

DROP TABLE old_zone_records;

-- The last known addresses of the named sources (-addr).
CREATE TABLE addresses (
    source TEXT NOT NULL PRIMARY KEY,
    ipv4   TEXT NOT NULL, -- '' none
    ipv6   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
