-- The key and the catalog for PowerDNS 4.7 with SQLite, after its schema:
--   sqlite3 /var/lib/powerdns/pdns.sqlite3 ".read pdns.sql"
INSERT INTO tsigkeys (name, algorithm, secret) VALUES ('powerdns.example', 'hmac-sha256', 'c2VjcmV0IG9mIHRoZSBwZWVyLCAzMiBvY3RldHMgbG9uZw==');

-- 4.7 does not use the key of the catalog for the zones that the catalog brings.
CREATE TRIGGER key_of_member AFTER INSERT ON domains WHEN NEW.type IN ('SLAVE', 'CONSUMER') BEGIN
    INSERT INTO domainmetadata (domain_id, kind, content) VALUES (NEW.id, 'AXFR-MASTER-TSIG', 'powerdns.example');
END;

INSERT INTO domains (name, type, master) VALUES ('catalog.invalid', 'CONSUMER', '127.0.0.1:5300');
