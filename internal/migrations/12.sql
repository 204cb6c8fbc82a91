-- From version 11 to version 12: secrets can be sealed, so formats and checks are read from columns of their own;
-- secondaries have ranges; a repeated request is one of the same caller.
ALTER TABLE appliance RENAME TO old_appliance;

CREATE TABLE appliance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    owner      TEXT    NOT NULL,             -- 12 hex digits; marks the values in DNS that are ours
    ipv4       TEXT    NOT NULL DEFAULT '',  -- this host's last known public addresses
    ipv6       TEXT    NOT NULL DEFAULT '',
    dns_hosts  TEXT    NOT NULL DEFAULT '',  -- the names of the DNS server that secondaries were last sent
    seal       TEXT    NOT NULL DEFAULT ''   -- the key with which all secrets are sealed: 8 hex digits of its SHA-256; '' not sealed; '*' behind it: old octets are not erased yet
) STRICT;

INSERT INTO appliance (id, owner, ipv4, ipv6, dns_hosts) SELECT id, owner, ipv4, ipv6, dns_hosts FROM old_appliance;
DROP TABLE old_appliance;

ALTER TABLE services ADD COLUMN formats TEXT NOT NULL DEFAULT '[]';
ALTER TABLE services ADD COLUMN checking TEXT NOT NULL DEFAULT '';
UPDATE services SET formats = config -> '$.formats' WHERE json_valid(config) AND json_type(config, '$.formats') = 'array';
UPDATE services SET checking = config -> '$.check' WHERE json_valid(config) AND json_type(config, '$.check') = 'object';
CREATE INDEX services_checked ON services (id) WHERE checking <> '';

ALTER TABLE secondaries RENAME TO old_secondaries;

CREATE TABLE secondaries (
    id            TEXT NOT NULL PRIMARY KEY,
    address       TEXT NOT NULL, -- IP address and port
    key_name      TEXT NOT NULL, -- of the TSIG key; '' none
    key_secret    TEXT NOT NULL, -- base64
    key_algorithm TEXT NOT NULL,
    zones         TEXT NOT NULL, -- JSON array of names, or '*' for all
    ranges        TEXT NOT NULL  -- JSON array of address ranges from which it asks, too
) STRICT, WITHOUT ROWID;

INSERT INTO secondaries (id, address, key_name, key_secret, key_algorithm, zones, ranges)
SELECT id, address, key_name, key_secret, key_algorithm, zones, '[]' FROM old_secondaries;
DROP TABLE old_secondaries;

DROP INDEX replays_by_age;
ALTER TABLE replays RENAME TO old_replays;

CREATE TABLE replays (
    key    TEXT    NOT NULL,
    caller TEXT    NOT NULL, -- whose token was in the request, as in audit lines; '' none was needed; '*' not known
    body   BLOB    NOT NULL, -- SHA-256 of the request's body
    answer TEXT    NOT NULL, -- JSON: its data
    at     INTEGER NOT NULL,
    PRIMARY KEY (key, caller)
) STRICT, WITHOUT ROWID;

INSERT INTO replays (key, caller, body, answer, at) SELECT key, '*', body, answer, at FROM old_replays;
DROP TABLE old_replays;
CREATE INDEX replays_by_age ON replays (at);
