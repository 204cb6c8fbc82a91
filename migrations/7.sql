-- From version 6 to version 7, the part that SQL can say: a name has a time at which a
-- place is to be looked at once more, and lanes have other keys; a place says whose key
-- its fault is about. The accounts are made anew by the step itself.
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
