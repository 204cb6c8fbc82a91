-- From version 12 to version 13: a lease may have the right to put challenges of ACME authorities.
DROP TRIGGER leases_counted;
DROP TRIGGER leases_discounted;
DROP TRIGGER leases_recounted;
ALTER TABLE leases RENAME TO old_leases;

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
    acme       INTEGER NOT NULL, -- 1: may put challenges; 2: has put one
    UNIQUE (usage, slot)
) STRICT;

INSERT INTO leases (seq, id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
SELECT seq, id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, 0 FROM old_leases;

-- The seq of a lease is never used twice.
INSERT INTO sqlite_sequence (name, seq) SELECT 'leases', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'leases');
UPDATE sqlite_sequence SET seq = coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name IN ('leases', 'old_leases')), 0) WHERE name = 'leases';
DROP TABLE old_leases;

CREATE TRIGGER leases_counted AFTER INSERT ON leases BEGIN
    INSERT INTO totals VALUES ('leases', 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER leases_discounted AFTER DELETE ON leases BEGIN
    UPDATE totals SET count = count - 1 WHERE what = 'leases' OR what = 'live leases' AND OLD.endpoints <> '[]';
END;
CREATE TRIGGER leases_recounted AFTER UPDATE OF endpoints ON leases WHEN (OLD.endpoints = '[]') <> (NEW.endpoints = '[]') BEGIN
    INSERT INTO totals VALUES ('live leases', 1) ON CONFLICT DO UPDATE SET count = count + iif(NEW.endpoints = '[]', -1, 1);
END;

CREATE TABLE challenges (
    seq    INTEGER PRIMARY KEY,
    usage  INTEGER NOT NULL REFERENCES usages (seq) ON DELETE CASCADE,
    lease  INTEGER NOT NULL REFERENCES leases (seq) ON DELETE CASCADE,
    value  TEXT    NOT NULL, -- of the TXT record
    put_at INTEGER NOT NULL,
    UNIQUE (lease, value)
) STRICT;

CREATE INDEX challenges_by_usage ON challenges (usage);
CREATE INDEX challenges_by_age ON challenges (put_at);
