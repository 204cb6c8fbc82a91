-- From version 13 to version 14: of two machines one writes at a time, in its term.
ALTER TABLE appliance ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
