-- From version 10 to version 11: a place of a record without a mark remembers what stood
-- there; the serials of zones have the zones' names from the root on; names tell changes by nodes from others.
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

INSERT INTO places (id, name, owner, type, account, zone, zone_id, state, standing, doubt, gone, look_at, disturbed, code, detail, key_of, attempts, at, since)
SELECT id, name, owner, type, account, zone, zone_id, state, standing, doubt, '', look_at, disturbed, code, detail, key_of, attempts, at, since
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

ALTER TABLE zone_serials RENAME TO old_zone_serials;

CREATE TABLE zone_serials (
    zone     TEXT    NOT NULL PRIMARY KEY,
    zone_key TEXT    NOT NULL UNIQUE, -- the zone with the labels from the root on
    serial   INTEGER NOT NULL CHECK (serial BETWEEN 0 AND 4294967295)
) STRICT, WITHOUT ROWID;

-- Each step moves the first label of rest to the beginning of zone_key.
WITH RECURSIVE reversed (zone, serial, rest, zone_key) AS (
    SELECT zone, serial, zone, '' FROM old_zone_serials
    UNION ALL
    SELECT zone, serial, substr(rest, instr(rest || '.', '.') + 1),
           substr(rest, 1, instr(rest || '.', '.') - 1) || iif(zone_key = '', '', '.' || zone_key)
    FROM reversed WHERE rest <> ''
)
INSERT INTO zone_serials (zone, zone_key, serial) SELECT zone, zone_key, serial FROM reversed WHERE rest = '';
DROP TABLE old_zone_serials;

DROP INDEX names_due;
DROP INDEX names_look;
ALTER TABLE names RENAME TO old_names;

CREATE TABLE names (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL, -- grows with every change of what is wanted here
    due     INTEGER,          -- when to work on it; NULL: when a pass comes by
    lane    TEXT    NOT NULL, -- the queue in which it is due: see package reconcile
    pass    INTEGER NOT NULL, -- the last pass in which it was worked on because it was due
    look    INTEGER,          -- when a place here is to be looked at once more; NULL: never
    asked   INTEGER NOT NULL DEFAULT 1 -- the version of the last change that neither a node nor a check has caused
) STRICT, WITHOUT ROWID;

INSERT INTO names (name, version, due, lane, pass, look, asked) SELECT name, version, due, lane, pass, look, version FROM old_names;
DROP TABLE old_names;
CREATE INDEX names_due ON names (lane, due) WHERE due IS NOT NULL;
CREATE INDEX names_look ON names (look) WHERE look IS NOT NULL;
