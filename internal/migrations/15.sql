-- From version 14 to version 15.

-- A usage keeps whether a token of its service only has reserved it. It may wait for a name that a usage of the same network has.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
UPDATE usages SET rival = 'n=' || rival WHERE rival <> '';
CREATE INDEX services_within ON services (zone_key);

-- A secondary keeps whether it is told of changes.
ALTER TABLE secondaries ADD COLUMN notify INTEGER NOT NULL DEFAULT 1;
