-- From version 8 to version 9: the secondaries of the built-in zones, and the changes for them.
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
    zones         TEXT NOT NULL  -- JSON array of names, or '*' for all
) STRICT, WITHOUT ROWID;

-- The names of this DNS server that secondaries were last sent.
ALTER TABLE appliance RENAME TO old_appliance;

CREATE TABLE appliance (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    owner      TEXT    NOT NULL,             -- 12 hex digits; marks the values in DNS that are ours
    ipv4       TEXT    NOT NULL DEFAULT '',  -- this host's last known public addresses
    ipv6       TEXT    NOT NULL DEFAULT '',
    dns_hosts  TEXT    NOT NULL DEFAULT ''   -- the names of the DNS server that secondaries were last sent
) STRICT;

INSERT INTO appliance (id, owner, ipv4, ipv6) SELECT id, owner, ipv4, ipv6 FROM old_appliance;

DROP TABLE old_appliance;

-- An RRset has one TTL (RFC 2181, section 5.2).
UPDATE zone_records SET ttl = (SELECT min(ttl) FROM zone_records AS r WHERE r.name = zone_records.name)
WHERE ttl <> (SELECT min(ttl) FROM zone_records AS r WHERE r.name = zone_records.name);
