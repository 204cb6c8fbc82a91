-- From version 14 to version 15: a usage keeps whether a token of its service only has reserved it, and waits for its name
-- while a usage of the same network has it, too; a challenge keeps by which call it was put.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
UPDATE usages SET rival = 'n=' || rival WHERE rival <> '';
CREATE INDEX services_within ON services (zone_key);
ALTER TABLE challenges ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
