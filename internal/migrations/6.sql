-- Version 6: a prefix stands in the index of names, and no longer in one of its own.
DROP INDEX usages_custom_prefix;
DROP INDEX usages_auto_prefix;
DROP INDEX usages_by_name;
CREATE UNIQUE INDEX usages_by_name ON usages
    (name, provider_id, iif(substr(record_prefix, 1, 5) = '_mesh' COLLATE NOCASE, id, ''));
