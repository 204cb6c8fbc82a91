-- From version 6 to version 7, the part that SQL can say: a name has a time at which a
-- place is to be looked at once more, and lanes have other keys; a place says whose key
-- its fault is about; a usage says what is told of its publishing, and is counted by that.
-- The accounts are made anew by the step itself.
DROP INDEX names_due;
ALTER TABLE names RENAME TO old_names;

CREATE TABLE names (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL, -- grows with every change of what is wanted here
    due     INTEGER,          -- when to work on it; NULL: when a pass comes by
    lane    TEXT    NOT NULL, -- who takes it: see package reconcile
    pass    INTEGER NOT NULL, -- the last pass in which it was worked on because it was due
    look    INTEGER           -- when a place here is to be looked at once more; NULL: never
) STRICT, WITHOUT ROWID;

-- A lane of a zone had the account's provider, key id and endpoint in its key, which
-- nothing has any more.
INSERT INTO names (name, version, due, lane, pass, look)
SELECT name, version, iif(lane = 'look', NULL, due), iif(lane = 'look', '', iif(lane > 'look', 'ask', lane)), pass, iif(lane = 'look', due, NULL)
FROM old_names;

DROP TABLE old_names;
CREATE INDEX names_due ON names (lane, due) WHERE due IS NOT NULL;
CREATE INDEX names_look ON names (look) WHERE look IS NOT NULL;

DROP TRIGGER places_counted;
DROP TRIGGER places_discounted;
DROP TRIGGER places_recounted;
DROP INDEX places_by_account;
DROP INDEX places_left;
ALTER TABLE places RENAME TO old_places;

CREATE TABLE places (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL,
    account   INTEGER NOT NULL REFERENCES accounts (id),
    zone      TEXT    NOT NULL, -- apex; '' when it is not found yet
    zone_id   TEXT    NOT NULL, -- what the provider tells it by from others of its name
    state     TEXT    NOT NULL CHECK (state IN
        ('pending', 'published', 'failed', 'conflict', 'withdrawing', 'leftover', 'withdrawn')),
    standing  TEXT    NOT NULL, -- the value that stands there as far as is known; '' none
    doubt     TEXT    NOT NULL, -- the value of the last write of unknown outcome; '*' before it: not the only one
    look_at   INTEGER NOT NULL, -- when to look here once more; 0 never
    disturbed INTEGER NOT NULL, -- how often in a row somebody with our mark had changed it
    code      TEXT    NOT NULL, -- why it is not as it should be, '' if it is
    detail    TEXT    NOT NULL,
    key_of    TEXT    NOT NULL, -- whose key met it: 'configuration', 'service <id>', 'nothing'; '' no key
    attempts  INTEGER NOT NULL,
    at        TEXT    NOT NULL, -- of the last news
    since     TEXT    NOT NULL, -- of the state
    UNIQUE (name, account, zone)
) STRICT;

INSERT INTO places (id, name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
SELECT id, name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, '', attempts, at, since
FROM old_places;

-- The ids of places are shown: none is given twice.
INSERT INTO sqlite_sequence (name, seq) SELECT 'places', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'places');
UPDATE sqlite_sequence SET seq = coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name IN ('places', 'old_places')), 0) WHERE name = 'places';

DROP TABLE old_places;
CREATE INDEX places_by_account ON places (account, zone);
CREATE INDEX places_left ON places (id) WHERE state = 'leftover';

DROP TRIGGER usages_counted;
DROP TRIGGER usages_discounted;
ALTER TABLE usages RENAME TO old_usages;
ALTER TABLE bindings RENAME TO old_bindings;

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
) STRICT;

CREATE TABLE bindings (
    seq         INTEGER PRIMARY KEY REFERENCES usages (seq) ON DELETE CASCADE,
    id          TEXT    NOT NULL,
    network_id  INTEGER NOT NULL, -- unsigned 64 bits as two's complement: 2^64-1 is stored as -1
    usage_id    TEXT    NOT NULL,
    provider_id TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('active', 'releasing'))
) STRICT;

-- What is told is nearly what the program works out, which compares all of them once it runs.
WITH known AS (
    SELECT u.*, b.status, b.network_id AS network,
           (SELECT o.network_id FROM old_usages ou JOIN old_bindings o ON o.seq = ou.seq
            WHERE ou.name = u.name AND o.status = 'active' ORDER BY ou.seq LIMIT 1) AS owner,
           (SELECT s.account IS NOT NULL OR s.zone = c.zone OR s.zone LIKE '%.' || c.zone
            FROM services s LEFT JOIN configuration c ON c.id = 1 WHERE s.id = u.provider_id) AS somewhere,
           (SELECT p.id FROM places p WHERE p.name = u.name AND p.state NOT IN ('withdrawing', 'leftover', 'withdrawn')
            ORDER BY p.state = 'published', p.id LIMIT 1) AS wanted,
           (SELECT p.id FROM places p WHERE p.name = u.name AND p.state IN ('withdrawing', 'leftover') ORDER BY p.id LIMIT 1) AS going
    FROM old_usages u LEFT JOIN old_bindings b ON b.seq = u.seq)
INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at,
                    state, place, rival)
SELECT seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at,
       CASE WHEN network IS NULL OR record_type <> 'TXT' THEN 'none'
            WHEN status = 'releasing' THEN 'withdrawing'
            WHEN network <> owner THEN 'conflict'
            WHEN somewhere IS NOT 1 THEN 'none'
            ELSE coalesce((SELECT state FROM places p WHERE p.id = wanted), 'pending') END,
       CASE WHEN network IS NULL OR record_type <> 'TXT' THEN 0
            WHEN status = 'releasing' THEN coalesce(going, 0)
            WHEN network <> owner OR somewhere IS NOT 1 THEN 0
            ELSE coalesce(wanted, 0) END,
       iif(status = 'active' AND network <> owner, printf('%u', owner), '')
FROM known ORDER BY seq;

INSERT INTO bindings SELECT * FROM old_bindings ORDER BY seq;
INSERT INTO sqlite_sequence (name, seq) SELECT 'usages', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'usages');
UPDATE sqlite_sequence SET seq = coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name IN ('usages', 'old_usages')), 0) WHERE name = 'usages';
DROP TABLE old_bindings;
DROP TABLE old_usages;
CREATE UNIQUE INDEX usages_by_name ON usages
    (name, provider_id, iif(substr(record_prefix, 1, 5) = '_mesh' COLLATE NOCASE, id, ''));

CREATE INDEX usages_by_service ON usages (provider_id, seq);
CREATE INDEX usages_by_state ON usages (state, seq);
CREATE INDEX bindings_by_network ON bindings (network_id, seq);

DROP TABLE totals;
CREATE TABLE totals (
    what  TEXT    NOT NULL PRIMARY KEY, -- 'services', a state of usages, or 'leftover' and 'withdrawn' for places
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO totals
SELECT 'services', count(*) FROM services
UNION ALL SELECT state, count(*) FROM usages GROUP BY state
UNION ALL SELECT state, count(*) FROM places WHERE state IN ('leftover', 'withdrawn') GROUP BY state;

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
