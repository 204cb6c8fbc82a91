-- From version 14 to version 15: a usage keeps whether a token of its service only has reserved it, and a challenge by which call
-- it was put.
ALTER TABLE usages ADD COLUMN tenant INTEGER NOT NULL DEFAULT 0;
ALTER TABLE challenges ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
