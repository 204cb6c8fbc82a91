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
	"testing/synctest"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

func FuzzAppendString(f *testing.F) {
	f.Add("a\"b\\c/<>&\x00\x1f\x7f\b\f\n\r\t \u2028\u2029\u2027 \xff\xe2\x80 \xed\xa0\x80 文\U0001f600")
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := string(appendString(nil, text)), standard(t, text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	})
}

// standard is what encoding/json makes of a value.
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

// alphabet has what JSON escapes, what is not UTF-8, and what is nearly either.
var alphabet = []string{"a", "~", " ", `"`, `\`, "/", "<", "\x00", "\x1e", "\x1f", "\x7f", "\n", "\t", "é", "\u2027", "\u2028", "\u2029", "\ufffd", "\xff", "\xe2\x80", "😀"}

// pageOf is a page of entries, as encoding/json writes them.
func pageOf(t *testing.T, entries []*ListedUsage) ListPage {
	p := ListPage{Size: len(entries)}
	p.Append = func(to []byte, first int) (written []byte, last int64) {
		for i, u := range entries[:first] {
			if i > 0 {
				to = append(to, ',')
			}
			to, last = append(append(to, standard(t, u)...), '\n'), u.Seq
		}
		return to, last
	}
	if p.Size > 0 {
		p.Last = entries[p.Size-1].Seq
	}
	return p
}

// fromSQLite has SQLite write usages as a page of the store is written. Those of the
// common service are its usages, and it is no service when it has no name.
func fromSQLite(t *testing.T, db *sql.DB, usages []*ListedUsage, common *ListedProvider, domain string) (r ListRows) {
	t.Helper()
	array := func(values ...any) (text string) {
		arguments := strings.Repeat(", ?", len(values))[2:]
		if err := db.QueryRow("SELECT json_array("+arguments+")", values...).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, u := range usages {
		row := []any{u.ID, u.Mode, u.Prefix, u.Description, u.IsOccupied, sqlite.Given(u.NetworkID)}
		switch {
		case u.Provider == nil:
			row = append(row, u.ProviderID, nil, nil)
		case *u.Provider != *common:
			row = append(row, u.Provider.ID, u.Provider.Name, domain)
		}
		code, detail, _ := strings.Cut(u.Publish.Error, "|")
		detail, key, _ := strings.Cut(detail, "|")
		r.Text += array(append(row, u.Publish.Attempts, u.Publish.State, u.Publish.Value, code, detail, key, u.Publish.At, u.Seq)...)
	}
	r.Size, r.Common = len(usages), array(common.ID, common.Name, domain)
	r.Fault = func(code, detail, key string) string { return code + "|" + detail + "|" + key }
	return r
}

// What SQLite writes becomes the entries as encoding/json writes them.
func TestRows(t *testing.T) {
	db, err := sql.Open("sqlite3", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	random := rand.New(rand.NewPCG(10, 1))
	text := func() (s string) {
		for range random.IntN(8) {
			s += alphabet[random.IntN(len(alphabet))]
		}
		return s
	}
	for range 300 {
		common, domain := &ListedProvider{ID: "c" + text(), Name: text()}, text()
		var usages []*ListedUsage
		for range 1 + random.IntN(4) {
			u := &ListedUsage{
				Seq: random.Int64(), ID: text(), Mode: mesh.PrefixMode(text()), Prefix: text(), RecordType: "TXT", Description: text(),
				IsOccupied: random.IntN(2) == 0, Provider: []*ListedProvider{common, {ID: text(), Name: text()}, nil}[random.IntN(3)],
			}
			if random.IntN(4) > 0 {
				n := mesh.NetworkID(random.Uint64() >> random.IntN(64))
				u.NetworkID = &n
			}
			u.Publish = ListedPublish{State: text(), Value: text(), Attempts: random.IntN(20), At: text()}
			if random.IntN(2) == 0 {
				u.NetworkName = text()
				u.Description = mesh.Describing + u.NetworkName
			}
			if code := text(); code != "" {
				u.Publish.Error = strings.ToValidUTF8(code+"|"+text()+"|"+text(), "\ufffd")
			}
			u.FullDomain = "_mesh." + u.Prefix + "."
			if u.ProviderID = text(); u.Provider != nil {
				u.ProviderID = u.Provider.ID
				u.FullDomain += domain
			}
			usages = append(usages, u)
		}
		rows, first := fromSQLite(t, db, usages, common, domain), 1+random.IntN(len(usages))
		got, last := rows.Page().Append(nil, first)
		want, wantLast := pageOf(t, usages).Append(nil, first)
		if string(got) != string(want) || last != wantLast || rows.Page().Last != usages[len(usages)-1].Seq {
			t.Fatalf("%+v is, with last %d,\n%s\nwant, with last %d,\n%s", rows, last, got, wantLast, want)
		}
	}
	if p := (ListRows{}).Page(); p.Size != 0 || p.Last != 0 {
		t.Errorf("no rows are %+v", p)
	}
}

func TestQuoted(t *testing.T) {
	for text, want := range map[string]int{
		`""`: 2, `"a",`: 3, `"\\"`: 4, `"\\",""`: 4, `"\"",`: 4, `"\\\"","`: 6, `"`: 1, `"a`: 2, `"\"`: 3, `"a\"b`: 5,
	} {
		if got := quoted(text); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}

// The list is written as a whole without a limit, however many pages it has; with one,
// the cursor of the next page is there when there is such a page.
func TestWrite(t *testing.T) {
	for _, test := range []struct{ entries, limit, written, cursor int }{
		{0, 0, 0, 0}, {19, 0, 19, 0}, {20, 0, 20, 0}, {60, 0, 60, 0}, {61, 0, 61, 0}, {8000, 0, 8000, 0},
		{0, 5, 0, 0}, {5, 5, 5, 0}, {6, 5, 5, 5}, {60, 5, 5, 5},
	} {
		read := func(after int64, size int) ListPage {
			var entries []*ListedUsage
			for n := after + 1; n <= int64(test.entries) && len(entries) < size; n++ {
				entries = append(entries, &ListedUsage{Seq: n, ID: strconv.FormatInt(n, 10)})
			}
			return pageOf(t, entries)
		}
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

// A page that cannot be read ends the answer where it is.
func TestWriteFails(t *testing.T) {
	fault := errors.New("no page")
	var out bytes.Buffer
	if err := WriteList(&out, 0, fullPage(t, firstSize), func(int64, int) ListPage { return ListPage{Err: fault} }); err != fault || json.Valid(out.Bytes()) {
		t.Errorf("%v after %s", err, out.Bytes())
	}
}

func fullPage(t *testing.T, size int) ListPage {
	return pageOf(t, slices.Repeat([]*ListedUsage{{Seq: 1}}, size))
}

// writer is a client that a test reads for.
type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// While a page is written the next is read, and none after that; when the answer breaks
// off, no more are.
func TestReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, written int
		client := writer(func(p []byte) (int, error) {
			synctest.Wait()
			if written++; asked != written {
				t.Errorf("%d pages are read after the first when %d are written", asked, written)
			}
			if written == 10 {
				panic("broken off")
			}
			return len(p), nil
		})
		defer func() {
			if recover() == nil {
				t.Error("it goes on")
			}
		}()
		WriteList(client, 0, fullPage(t, firstSize), func(_ int64, size int) ListPage {
			asked++
			return fullPage(t, size)
		})
	})
}
