package bench

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"
)

// first is the network of the usage that all others are made after. Networks
// and prefixes count up from it, with as many digits.
const first = 10_000_000

const zone = "example.com"

// account says where is published, and when.
type account struct {
	Provider string `json:"provider"`
	KeyID    string `json:"access_key_id"`
	Secret   string `json:"access_key_secret"`
	Endpoint string `json:"endpoint"`
	Mode     string `json:"sync_mode"`
}

var builtin = account{Provider: "builtin", KeyID: "-", Secret: "-", Mode: "manual"}

func (a account) automatic() account { a.Mode = "auto"; return a }

// configure stores the configuration.
func (p *program) configure(a account) {
	p.t.Helper()
	body, err := json.Marshal(struct {
		account
		Domain    string   `json:"domain"`
		Record    string   `json:"txt_record_name"`
		Enabled   bool     `json:"enabled"`
		Endpoints []string `json:"txt_endpoints"`
	}{a, zone, "_own", true, []string{"tcp://203.0.113.7:11010"}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.call("PUT", "/config", string(body))
}

// reserve reserves the prefix of a number, and gives the usage's id.
func (p *program) reserve(n int) string {
	p.t.Helper()
	answer, _ := p.call("POST", "/usages", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"n%d","network_id":%d}`, n, n))
	var body struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(answer), &body); err != nil {
		p.t.Fatalf("%v: %s", err, answer)
	}
	return body.Data.ID
}

func nameOf(n int) string { return fmt.Sprintf("_mesh.n%d.%s", n, zone) }

// idOf is the id of a usage that was filled in.
func idOf(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// reserved gives a database with names that were never published.
func reserved(t testing.TB, a account, names int) string {
	return prepare(t, a, way{}, names, func(*program) {})
}

// reservedBy gives a database of another build, whose tables may be others.
func reservedBy(t testing.TB, w way, names int) string {
	return prepare(t, builtin, w, names, func(*program) {})
}

// published gives a database with names that stand at the provider. Of a provider
// other than builtin the caller puts them there.
func published(t testing.TB, a account, names int) string {
	return prepare(t, a, way{}, names, func(p *program) { p.sync(1) })
}

// prepare has the program make its tables and one usage, and makes the others
// after that one. The zero account is no configuration.
func prepare(t testing.TB, a account, w way, names int, begin func(*program)) string {
	t.Helper()
	db := filepath.Join(t.TempDir(), "bench.db")
	p := startAs(t, db, w)
	if a != (account{}) {
		p.configure(a)
	}
	p.call("POST", "/services", `{"id":"svc","name":"svc","config":{"domain":"`+zone+`"}}`)
	p.reserve(first)
	begin(p)
	p.stop()
	if err := fill(db, names); err != nil {
		t.Fatal(err)
	}
	return db
}

// fill copies every row that belongs to the first usage, with another number and
// another id, in one transaction.
func fill(path string, names int) error {
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=OFF&_synchronous=OFF&_cache_size=-200000")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, table := range []struct{ name, mark string }{
		{"usages", "name"}, {"bindings", "network_id"}, {"names", "name"}, {"places", "name"}, {"zone_records", "name"},
	} {
		columns, values, err := copied(tx, table.name)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`
			WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1 - 1)
			INSERT INTO `+table.name+` (`+columns+`)
			SELECT `+values+` FROM numbers, (SELECT * FROM `+table.name+` WHERE instr(`+table.mark+`, ?2))`, names, first)
		if err != nil {
			return fmt.Errorf("fill %s: %w", table.name, err)
		}
	}
	return tx.Commit()
}

// copied gives the columns of a table, and what a copy has in each.
func copied(tx *sql.Tx, table string) (columns, values string, err error) {
	rows, err := tx.Query(`SELECT name, type FROM pragma_table_info(?)`, table)
	if err != nil {
		return "", "", err
	}
	defer rows.Close()
	var all, of []string
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return "", "", err
		}
		value := name
		switch {
		case kind == "INTEGER" && name == "place", table == "places" && name == "id":
			value = `iif(` + name + ` > 0, ` + name + ` + 1000 + n, 0)` // after the places of other names
		case kind == "INTEGER" && (name == "seq" || name == "network_id"):
			value = name + ` + n`
		case name == "id" || name == "usage_id":
			value = `format('00000000-0000-7000-8000-%012d', ?2 + n)`
		case kind == "TEXT":
			value = `replace(` + name + `, ?2, ?2 + n)`
		case kind == "BLOB":
			value = `CAST(replace(CAST(` + name + ` AS TEXT), ?2, ?2 + n) AS BLOB)`
		}
		all, of = append(all, name), append(of, value)
	}
	return strings.Join(all, ", "), strings.Join(of, ", "), rows.Err()
}
