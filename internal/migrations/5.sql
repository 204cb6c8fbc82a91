-- Version 5: each built-in zone has a serial of its own.
CREATE TABLE zone_serials (
    zone   TEXT    NOT NULL PRIMARY KEY,
    serial INTEGER NOT NULL CHECK (serial BETWEEN 0 AND 4294967295)
) STRICT, WITHOUT ROWID;

INSERT INTO zone_serials (zone, serial)
SELECT z.zone, appliance.dns_serial & 4294967295
FROM appliance, (SELECT zone FROM services WHERE provider = 'builtin' UNION SELECT zone FROM configuration WHERE provider = 'builtin') z
WHERE z.zone <> '';

ALTER TABLE appliance DROP COLUMN dns_serial;
