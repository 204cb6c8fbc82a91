-- From version 14 to version 15: a usage keeps whether a token of its service only has reserved it.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
