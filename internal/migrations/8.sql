-- From version 7 to version 8: events, notifications, samples for the status page, and
-- answers that are given again.
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

-- Answers to reservations with an Idempotency-Key, kept for a day.
CREATE TABLE replays (
    key    TEXT    NOT NULL PRIMARY KEY,
    body   BLOB    NOT NULL, -- SHA-256 of the request's body
    answer TEXT    NOT NULL, -- JSON: its data
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX replays_by_age ON replays (at);
