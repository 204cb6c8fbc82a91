package answers

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/mesh"
)

// standard returns a value as encoding/json writes it.
func standard(t *testing.T, value any) string {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// bySQLite returns the entry of a usage as SQLite writes it. A fault is its code, detail and key,
// separated by "|".
func bySQLite(t *testing.T, db *sql.DB, u ListedUsage) (text string) {
	t.Helper()
	code, detail, _ := strings.Cut(u.Publish.Error, "|")
	detail, key, _ := strings.Cut(detail, "|")
	var providerID, providerName any
	if u.Provider != nil {
		providerID, providerName = u.Provider.ID, u.Provider.Name
	}
	if err := db.QueryRow(`
		SELECT json_object('id', ?1, 'provider_id', ?2, 'prefix_mode', ?3, 'record_prefix', ?4, 'record_type', ?5, 'description', ?6,
		    'is_occupied', json(iif(?7, 'true', 'false')), 'network_id', iif(?8 < 0, json(printf('%u', ?8)), ?8), 'full_domain', ?9,
		    'provider', iif(?10 IS NULL, NULL, json_object('id', ?10, 'name', ?11)), 'network_name', ?12,
		    'publish', json_object('state', ?13, 'value', ?14, 'error', iif(?15 = '', '', json_array(?15, ?16, ?17)), 'attempts', ?18, 'at', ?19))`,
		u.ID, u.ProviderID, u.Mode, u.Prefix, u.RecordType, u.Description, u.IsOccupied, u.NetworkID, u.FullDomain,
		providerID, providerName, u.NetworkName, u.Publish.State, u.Publish.Value, code, detail, key, u.Publish.Attempts, u.Publish.At,
	).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// alphabet has characters that JSON escapes, invalid UTF-8, characters close to both, and the text that
// ListEntries looks for.
var alphabet = []string{"a", " ", `"`, `\`, "/", "<", "\x00", "\x1f", "\x7f", "\n", "\t", "é", "\u2027", "\u2028", "\u2029", "\ufffd", "\xff", "\xe2\x80", "😀",
	`"error":["x","y","z"]`, `"network_id":null,`, `,"provider":null,`}

func randomUsage(random *rand.Rand) (u ListedUsage) {
	text := func() (s string) {
		for range random.IntN(8) {
			s += alphabet[random.IntN(len(alphabet))]
		}
		return s
	}
	u = ListedUsage{
		ID: text(), ProviderID: text(), Mode: mesh.PrefixMode(text()), Prefix: text(), RecordType: "TXT", Description: text(), IsOccupied: random.IntN(2) == 0,
		FullDomain: text(), NetworkName: text(), Publish: ListedPublish{State: text(), Value: text(), Attempts: random.IntN(20), At: text()},
	}
	if random.IntN(2) == 0 {
		u.Provider = &ListedProvider{ID: text(), Name: text()}
	}
	if random.IntN(4) > 0 {
		n := mesh.NetworkID(random.Uint64() >> random.IntN(64))
		u.NetworkID = &n
	}
	if random.IntN(2) == 0 {
		u.Publish.Error = "code" + strings.ToValidUTF8(strings.ReplaceAll(text()+"|"+text()+"|"+text(), "\x00", ""), "\ufffd")
	}
	return u
}

// TestListEntries turns usages that SQLite wrote into the entries that encoding/json writes.
func TestListEntries(t *testing.T) {
	db, err := sql.Open("sqlite3", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	random := rand.New(rand.NewPCG(10, 1))
	fault := func(code, detail, key string) string { return code + "|" + detail + "|" + key }
	for range 500 {
		var given, want []string
		last := ""
		for range random.IntN(4) {
			u := randomUsage(random)
			if random.IntN(2) == 0 { // the same as before
				u.Publish.Error = last
			}
			last = u.Publish.Error
			given, want = append(given, bySQLite(t, db, u)), append(want, standard(t, u))
		}
		got := ListEntries(strings.Join(given, "\n,"), fault)
		if want := strings.Join(want, "\n,"); got != want {
			t.Fatalf("%s\nis\n%s\nwant\n%s", given, got, want)
		}
	}
}
