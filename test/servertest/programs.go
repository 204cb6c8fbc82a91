package servertest

// bind keeps named away from /run and its control port.
var bind = program{
	name:  "BIND",
	needs: []string{"named"},
	start: []string{"named", "-g", "-c", "{{.Dir}}/named.conf"},
	files: map[string]string{
		"zone.db": zoneFile,
		"named.conf": `
key "mesh-key" { algorithm hmac-sha256; secret "{{.Secret}}"; };
key "mesh512" { algorithm hmac-sha512; secret "{{.Secret512}}"; };
key "readonly-key" { algorithm hmac-sha256; secret "{{.ReadOnly}}"; };
key "part-key" { algorithm hmac-sha256; secret "{{.Part}}"; };
options {
	directory "{{.Dir}}";
	pid-file "{{.Dir}}/named.pid";
	session-keyfile "{{.Dir}}/session.key";
	listen-on port {{.Port}} { 127.0.0.1; };
	listen-on-v6 { none; };
	recursion no;
	dnssec-validation no;
	notify no;
	allow-transfer { key "mesh-key"; };
};
controls { };
zone "example.com" {
	type primary;
	file "{{.Dir}}/zone.db";
	update-policy { grant mesh-key zonesub ANY; grant mesh512 zonesub ANY; grant part-key subdomain part.example.com ANY; };
};
`},
}

var knot = program{
	name:  "Knot",
	needs: []string{"knotd"},
	start: []string{"knotd", "-c", "{{.Dir}}/knot.conf"},
	files: map[string]string{
		"zone.db": zoneFile,
		"knot.conf": `
server:
    rundir: {{.Dir}}
    listen: 127.0.0.1@{{.Port}}
    udp-workers: 1
    tcp-workers: 2
    background-workers: 1
database:
    storage: {{.Dir}}
key:
  - id: mesh-key
    algorithm: hmac-sha256
    secret: {{.Secret}}
  - id: mesh512
    algorithm: hmac-sha512
    secret: {{.Secret512}}
  - id: readonly-key
    algorithm: hmac-sha256
    secret: {{.ReadOnly}}
  - id: part-key
    algorithm: hmac-sha256
    secret: {{.Part}}
acl:
  - id: update
    key: [mesh-key, mesh512]
    action: update
  - id: part
    key: part-key
    action: update
    update-owner: name
    update-owner-match: sub-or-equal
    update-owner-name: part.example.com.
  - id: transfer
    key: mesh-key
    action: transfer
zone:
  - domain: example.com
    storage: {{.Dir}}
    file: zone.db
    acl: [update, part, transfer]
    zonefile-sync: -1
    journal-content: all
log:
  - target: stderr
    any: info
`},
}

// powerDNS answers without its caches, so that a test sees each change at once.
var powerDNS = program{
	name:  "PowerDNS",
	needs: []string{"pdns_server", "pdnsutil", "sqlite3"},
	setup: [][]string{
		{"sqlite3", "{{.Dir}}/pdns.db", ".read /usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql"},
		{"pdnsutil", "--config-dir={{.Dir}}", "load-zone", "example.com", "{{.Dir}}/zone.db"},
		{"pdnsutil", "--config-dir={{.Dir}}", "import-tsig-key", "mesh-key", "hmac-sha256", "{{.Secret}}"},
		{"pdnsutil", "--config-dir={{.Dir}}", "import-tsig-key", "mesh512", "hmac-sha512", "{{.Secret512}}"},
		{"pdnsutil", "--config-dir={{.Dir}}", "import-tsig-key", "readonly-key", "hmac-sha256", "{{.ReadOnly}}"},
		{"pdnsutil", "--config-dir={{.Dir}}", "set-meta", "example.com", "TSIG-ALLOW-DNSUPDATE", "mesh-key", "mesh512"},
		{"pdnsutil", "--config-dir={{.Dir}}", "set-meta", "example.com", "TSIG-ALLOW-AXFR", "mesh-key"},
		{"pdnsutil", "--config-dir={{.Dir}}", "set-meta", "example.com", "SOA-EDIT-API", "DEFAULT"},
	},
	start: []string{"pdns_server", "--config-dir={{.Dir}}"},
	files: map[string]string{
		"zone.db": zoneFile,
		"pdns.conf": `
launch=gsqlite3
gsqlite3-database={{.Dir}}/pdns.db
local-address=127.0.0.1
local-port={{.Port}}
socket-dir={{.Dir}}
daemon=no
guardian=no
dname-processing=yes
primary=yes
dnsupdate=yes
allow-dnsupdate-from=127.0.0.0/8
api=yes
api-key={{.Token}}
webserver=yes
webserver-address=127.0.0.1
webserver-port={{.APIPort}}
webserver-allow-from=127.0.0.0/8
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
zone-cache-refresh-interval=0
`},
}
