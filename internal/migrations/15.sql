-- From version 14 to version 15: a usage keeps whether a token of its service only has reserved it;
-- a secondary keeps whether it is told of changes.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
ALTER TABLE secondaries ADD COLUMN notify INTEGER NOT NULL DEFAULT 1;
