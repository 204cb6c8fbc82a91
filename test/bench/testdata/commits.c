/*
 * Reserves prefixes one by one, each in a transaction of its own: what SQLite
 * itself can do on this disk, without a server.
 *
 *   commits DATABASE FIRST MILLISECONDS
 *
 * DATABASE is one that the program has made, with its tables and triggers and the
 * service "svc". It prints how many reservations it made, in how many nanoseconds.
 */
#include <sqlite3-binding.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static sqlite3 *db;

static void check(int rc) {
	if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) {
		fprintf(stderr, "commits: %s\n", sqlite3_errmsg(db));
		exit(1);
	}
}

static sqlite3_stmt *prepared(const char *sql) {
	sqlite3_stmt *s;
	check(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL));
	return s;
}

static void step(sqlite3_stmt *s) {
	check(sqlite3_step(s));
	check(sqlite3_reset(s));
}

static void text(sqlite3_stmt *s, int at, const char *value) {
	check(sqlite3_bind_text(s, at, value, -1, SQLITE_TRANSIENT));
}

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* spread is a number that no other number gives, and that is far from its
 * neighbours' (splitmix64): prefixes do not come in the order of the index. */
static unsigned long long spread(unsigned long long n) {
	n += 0x9e3779b97f4a7c15ULL;
	n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
	n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
	return n ^ (n >> 31);
}

static sqlite3_stmt *begin, *usage, *binding, *commit;

static void reserve(unsigned long long n) {
	char id[40], prefix[24], name[64];
	snprintf(id, sizeof id, "01000000-0000-7000-8000-%012llx", n);
	snprintf(prefix, sizeof prefix, "r%016llx", spread(n));
	snprintf(name, sizeof name, "_mesh.%s.example.com", prefix);
	step(begin);
	text(usage, 1, id);
	text(usage, 2, prefix);
	text(usage, 3, name);
	step(usage);
	check(sqlite3_bind_int64(binding, 1, sqlite3_last_insert_rowid(db)));
	text(binding, 2, id);
	check(sqlite3_bind_int64(binding, 3, (sqlite3_int64)n));
	text(binding, 4, id);
	step(binding);
	step(commit);
}

int main(int argc, char **argv) {
	if (argc != 4) {
		fprintf(stderr, "usage: commits DATABASE FIRST MILLISECONDS\n");
		return 2;
	}
	unsigned long long first = strtoull(argv[2], NULL, 10), n = first;
	check(sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE, NULL));
	check(sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", NULL, NULL, NULL));
	begin = prepared("BEGIN IMMEDIATE");
	commit = prepared("COMMIT");
	usage = prepared(
		"INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at) "
		"VALUES (?1, 'svc', 'mesh_sync', 'custom', ?2, 'TXT', 'mesh sync - net', 1, '[]', ?3, '2026-01-02T03:04:05.678Z')");
	binding = prepared("INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?1, ?2, ?3, ?4, 'svc', 'active')");
	long long start = now(), end = start + atoll(argv[3]) * 1000000LL;
	while (now() < end)
		reserve(n++);
	printf("%llu %lld\n", n - first, now() - start);
	return 0;
}
