-- Version 4: a prefix stands in one index, that of custom or that of automatic
-- prefixes, and no longer in a third one for both.
DROP INDEX usages_by_prefix;
DROP INDEX usages_custom_prefix;
CREATE UNIQUE INDEX usages_custom_prefix ON usages (provider_id, record_prefix COLLATE NOCASE)
    WHERE substr(record_prefix, 1, 5) <> '_mesh' COLLATE NOCASE;
CREATE INDEX usages_auto_prefix ON usages (provider_id, record_prefix COLLATE NOCASE)
    WHERE substr(record_prefix, 1, 5) = '_mesh' COLLATE NOCASE;
