-- What holds in every database of meshddns at every moment. Each query gives a row
-- for what is wrong, and says what; on a sound database none gives any.

SELECT 'the file: ' || integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok';

SELECT 'a reference of ' || "table" || ' to nothing in ' || parent FROM pragma_foreign_key_check;

SELECT 'a usage without a binding: ' || id FROM usages WHERE seq NOT IN (SELECT seq FROM bindings);

SELECT 'a binding that is not of its usage: ' || b.id
FROM bindings b LEFT JOIN usages u ON u.seq = b.seq
WHERE u.id IS NOT b.usage_id OR u.provider_id IS NOT b.provider_id;

SELECT 'a prefix given twice: ' || min(record_prefix)
FROM usages WHERE prefix_mode = 'custom' GROUP BY provider_id, lower(record_prefix) HAVING count(*) > 1;

SELECT 'an automatic name of two networks: ' || u.name
FROM usages u JOIN bindings b ON b.seq = u.seq
WHERE u.prefix_mode = 'auto' GROUP BY u.name HAVING count(DISTINCT b.network_id) > 1;

SELECT 'a prefix of the other mode: ' || record_prefix
FROM usages WHERE (prefix_mode = 'auto') <> (lower(substr(record_prefix, 1, 5)) = '_mesh');

SELECT 'a usage at another name than its own: ' || u.name
FROM usages u JOIN services s ON s.id = u.provider_id
WHERE u.name <> '_mesh.' || lower(u.record_prefix) || '.' || s.zone;

SELECT 'a usage whose name nobody works on: ' || name FROM usages WHERE name NOT IN (SELECT name FROM names);

SELECT 'a place whose name nobody works on: ' || name FROM places WHERE name NOT IN (SELECT name FROM names);

SELECT 'a configuration whose name nobody works on: ' || name FROM configuration WHERE name NOT IN (SELECT name FROM names);

SELECT 'a usage that tells of a place that is not at its name: ' || u.id
FROM usages u LEFT JOIN places p ON p.id = u.place WHERE u.place <> 0 AND p.name IS NOT u.name;

SELECT 'a key that nothing needs: account ' || id
FROM accounts
WHERE id NOT IN (SELECT account FROM places) AND id NOT IN (SELECT account FROM configuration) AND
      id NOT IN (SELECT account FROM services WHERE account IS NOT NULL) AND
      NOT EXISTS (SELECT 1 FROM accounts o JOIN places p ON p.account = o.id -- an older secret of the key may be refused
                  WHERE (o.provider, o.endpoint, o.access_key_id) = (accounts.provider, accounts.endpoint, accounts.access_key_id) AND o.id < accounts.id);

SELECT 'a count of usages that is wrong: service ' || id
FROM services WHERE usage_count <> (SELECT count(*) FROM usages WHERE provider_id = services.id);

SELECT 'a total that is wrong: ' || what
FROM (SELECT 'services' AS what, (SELECT count(*) FROM services) AS counted
      UNION ALL SELECT 'leases', count(*) FROM leases
      UNION ALL SELECT 'live leases', count(*) FROM leases WHERE endpoints <> '[]'
      UNION ALL SELECT state, count(*) FROM usages GROUP BY state
      UNION ALL SELECT state, count(*) FROM places WHERE state IN ('leftover', 'withdrawn') GROUP BY state
      UNION ALL SELECT what, 0 FROM totals
                WHERE what NOT IN ('services', 'leases', 'live leases') AND what NOT IN (SELECT state FROM usages) AND
                      what NOT IN (SELECT state FROM places WHERE state IN ('leftover', 'withdrawn'))) c
WHERE counted <> coalesce((SELECT count FROM totals WHERE totals.what = c.what), 0);

SELECT 'rows of what there is one of: ' || n
FROM (SELECT 'appliance' AS n, count(*) AS c FROM appliance UNION ALL SELECT 'pass', count(*) FROM pass) WHERE c <> 1;

SELECT 'no owner: ' || owner FROM appliance WHERE length(owner) <> 12 OR owner GLOB '*[^0-9a-f]*';
