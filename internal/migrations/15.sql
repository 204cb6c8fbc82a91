-- From version 14 to version 15.

-- A usage keeps whether a token of its service only has reserved it. It may wait for a name that a usage of the same network has.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
UPDATE usages SET rival = 'n=' || rival WHERE rival <> '';
CREATE INDEX services_within ON services (zone_key);

-- A secondary keeps whether it is told of changes.
ALTER TABLE secondaries ADD COLUMN notify INTEGER NOT NULL DEFAULT 1;

-- Values without a mark that may be from before a restore, and the last event before a sweep.
ALTER TABLE pass ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
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
CREATE TRIGGER unmarked_counted AFTER INSERT ON unmarked BEGIN
    INSERT INTO totals VALUES ('leftover', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER unmarked_discounted AFTER DELETE ON unmarked BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'leftover';
END;

-- A challenge keeps by which call it was put.
ALTER TABLE challenges ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
