package answers

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
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

// listOf returns the function that reads pages of a list of so many entries.
func listOf(t *testing.T, entries int) func(after int64, size int) ListPage {
	return func(after int64, size int) (p ListPage) {
		var all []string
		for n := after + 1; n <= int64(entries) && len(all) < size; n++ {
			p.Last = n
			all = append(all, standard(t, ListedUsage{ID: strconv.FormatInt(n, 10)}))
		}
		p.Size, p.Entries = len(all), strings.Join(all, "\n,")
		return p
	}
}

// TestWriteList writes all pages without a limit. With a limit the answer has the cursor of the next
// page, if there is one.
func TestWriteList(t *testing.T) {
	for _, test := range []struct{ entries, limit, written, cursor int }{
		{0, 0, 0, 0}, {19, 0, 19, 0}, {20, 0, 20, 0}, {60, 0, 60, 0}, {61, 0, 61, 0}, {8000, 0, 8000, 0},
		{0, 5, 0, 0}, {5, 5, 5, 0}, {6, 5, 5, 5}, {60, 5, 5, 5},
	} {
		read := listOf(t, test.entries)
		var out bytes.Buffer
		if err := WriteList(&out, test.limit, read(0, FirstSize(test.limit)), read); err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data []ListedUsage `json:"data"`
			Next string        `json:"next_cursor"`
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		for i, u := range answer.Data {
			if u.ID != strconv.Itoa(i+1) {
				t.Fatalf("%+v: entry %d is %s", test, i+1, u.ID)
			}
		}
		if next, _ := strconv.Atoi(answer.Next); len(answer.Data) != test.written || next != test.cursor || answer.Data == nil {
			t.Errorf("%+v: %d entries, then %q", test, len(answer.Data), answer.Next)
		}
	}
}

// TestWriteListFails has a page that cannot be read: the answer ends there.
func TestWriteListFails(t *testing.T) {
	fault := errors.New("no page")
	for _, limit := range []int{0, 5} {
		var out bytes.Buffer
		err := WriteList(&out, limit, listOf(t, 100)(0, FirstSize(limit)), func(int64, int) ListPage { return ListPage{Err: fault} })
		if err != fault || out.Len() == 0 || json.Valid(out.Bytes()) {
			t.Errorf("limit %d: %v after %s", limit, err, out.Bytes())
		}
	}
}

// client is a writer that calls a function, as a test's client.
type client func(p []byte)

func (c client) Write(p []byte) (int, error) { c(p); return len(p), nil }

// TestPageByPage reads each page after the one before is written. The pages grow up to a limit: a client
// that stops reading holds at most one page.
func TestPageByPage(t *testing.T) {
	const all = 3000
	var sizes []int
	read, written := listOf(t, all), 0
	into := client(func(p []byte) { written += bytes.Count(p, []byte(`"id"`)) })
	err := WriteList(into, 0, read(0, FirstSize(0)), func(after int64, size int) ListPage {
		if written != int(after) {
			t.Errorf("%d entries are written when what follows %d is read", written, after)
		}
		sizes = append(sizes, size)
		return read(after, size)
	})
	if err != nil || written != all || !slices.IsSorted(sizes) || sizes[0] != firstSize+growth || sizes[len(sizes)-1] != largestSize {
		t.Errorf("%v, %d written, pages of %v", err, written, sizes)
	}
}
