package resource

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// door is an entry of a test: its code goes with its house.
type door struct {
	ID    string         `json:"id"`
	House string         `json:"house"`
	Code  secrets.Masked `json:"code"`
	Keys  []string       `json:"keys"`

	opened int // in memory only
}

const (
	unknown = sqlite.Refusal(msg.UnknownSecondary)
	tooMany = sqlite.Refusal(msg.TooManySecondaries)
	taken   = sqlite.Refusal(msg.SecondaryKeyDiffers)
)

var errNoCode = errors.New("no code")

func (d door) Check(language msg.Language) (door, error) {
	if d.ID == "bad" {
		return d, msg.Refuse(msg.ServiceIDInvalid)
	}
	if d.House == "" {
		d.House = map[msg.Language]string{msg.Chinese: "宅", msg.English: "house"}[language]
	}
	if d.Keys == nil {
		d.Keys = []string{"k"}
	}
	return d, nil
}

func (d door) Unmask(stored door) (_ door, err error) {
	d.Code, err = Keep(d.Code, stored.Code, d.Code == secrets.Mask, d.House == stored.House, errNoCode)
	return d, err
}

// open makes a table of at most two doors. A door with the code of another one is refused.
func open(t *testing.T) (*Table[door], *sqlite.Database) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Schema{
		Tables: `CREATE TABLE doors (id TEXT NOT NULL PRIMARY KEY, house TEXT NOT NULL, code TEXT NOT NULL, keys TEXT NOT NULL) STRICT, WITHOUT ROWID`,
		First:  func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	doors := New(db, Kind[door]{
		Most: 2, Shown: door{}, Unknown: unknown, TooMany: tooMany, Saved: msg.SecondarySaved, Deleted: msg.SecondaryDeleted,
		ID:     func(d *door) *string { return &d.ID },
		Select: `SELECT id, house, code, keys FROM doors ORDER BY id`,
		Scan: func(row sqlite.Scanner) (d door, err error) {
			err = row.Scan(&d.ID, &d.House, &d.Code, (*sqlite.TextList)(&d.Keys))
			return d, err
		},
		Delete: `DELETE FROM doors WHERE id = ?`,
		Store: func(ctx context.Context, tx *sql.Tx, d, stored door, all []door) (door, error) {
			if slices.ContainsFunc(all, func(o door) bool { return o.ID != d.ID && o.Code == d.Code && d.Code != "" }) {
				return d, taken
			}
			_, err := tx.ExecContext(ctx, `REPLACE INTO doors VALUES (?, ?, ?, ?)`, d.ID, d.House, d.Code, sqlite.TextList(d.Keys))
			return d, err
		},
		Carry: func(now, before *door) {
			if before != nil {
				now.opened = before.opened + 1
			}
		},
	})
	db.Subscribe(doors.Committed)
	return doors, db
}

// save stores a door, and returns the error.
func save(t *testing.T, doors *Table[door], d door) error {
	t.Helper()
	d, err := d.Check(msg.English)
	if err != nil {
		t.Fatal(err)
	}
	_, err = doors.Save(t.Context(), d)
	return err
}

// TestSave: a table has at most so many rows, and a refusal of the kind changes nothing. A mask keeps a code that is
// stored and stays where it was.
func TestSave(t *testing.T) {
	doors, _ := open(t)
	for _, step := range []struct {
		door
		want error
	}{
		{door{ID: "b", Code: secrets.Mask}, errNoCode},
		{door{ID: "b", Code: "1234"}, nil},
		{door{ID: "a", Code: "1234"}, taken},
		{door{ID: "a"}, nil},
		{door{ID: "c"}, tooMany},
		{door{ID: "b", Code: secrets.Mask, Keys: []string{"x", "y"}}, nil},
		{door{ID: "b", House: "other", Code: secrets.Mask}, errNoCode},
		{door{ID: "a", Code: secrets.Mask}, errNoCode},
	} {
		if err := save(t, doors, step.door); err != step.want {
			t.Errorf("%+v: %v, want %v", step.door, err, step.want)
		}
	}
	all, err := doors.All(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != "a" || all[1].Code != "1234" || all[1].House != "house" || len(all[1].Keys) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := doors.Delete(t.Context(), "c"); err != unknown {
		t.Error(err)
	}
	if err := doors.Delete(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if _, err := doors.One(t.Context(), "b"); err != unknown {
		t.Error(err)
	}
	if ids, err := doors.IDs(t.Context()); err != nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("%q, %v", ids, err)
	}
}

// TestApply: an entry of a provisioning file is stored once, and a mask in it is no change.
func TestApply(t *testing.T) {
	doors, _ := open(t)
	for _, step := range []struct {
		body    string
		changed bool
		want    error
	}{
		{`{"id":"a","code":"1234"}`, true, nil},
		{`{"id":"a","code":"1234","house":"宅","keys":["k"]}`, false, nil},
		{`{"id":"a","code":"********"}`, false, nil},
		{`{"id":"a","code":"********","keys":["l"]}`, true, nil},
		{`{"id":"a","code":"********","house":"other"}`, false, errNoCode},
		{`{"id":"b"}`, true, nil},
		{`{"id":"c"}`, true, tooMany},
	} {
		id, changed, err := doors.Apply(t.Context(), []byte(step.body))
		if err != step.want || err == nil && (changed != step.changed || id != step.body[7:8]) {
			t.Errorf("%s: %q, changed %v, %v", step.body, id, changed, err)
		}
	}
	for _, body := range []string{`{"id":"bad"}`, `{"id":1}`, `[]`} {
		if _, _, err := doors.Apply(t.Context(), []byte(body)); err == nil {
			t.Errorf("%s is accepted", body)
		}
	}
}

// TestCopy: after any order of commits the copy in memory is what is stored, and what it knows beside the rows stays
// with a row while it lives.
func TestCopy(t *testing.T) {
	doors, _ := open(t)
	changed := doors.Changed()
	if err := save(t, doors, door{ID: "a"}); err != nil || doors.Find("a") == nil {
		t.Fatalf("%v, %+v", err, doors.Known())
	}
	select {
	case <-changed:
	default:
		t.Error("a change is not told")
	}
	if save(t, doors, door{ID: "a", House: "other"}); doors.Find("a").opened != 1 || doors.Find("a").House != "other" {
		t.Errorf("%+v", doors.Find("a"))
	}
	for range 100 {
		var both sync.WaitGroup
		both.Go(func() { save(t, doors, door{ID: "b"}) })
		both.Go(func() { doors.Delete(t.Context(), "b") })
		both.Wait()
		if stored, err := doors.IDs(t.Context()); err != nil || len(stored) != len(doors.Known()) {
			t.Fatalf("%q are stored, %+v in memory: %v", stored, doors.Known(), err)
		}
	}
	changed = doors.Changed()
	if err := save(t, doors, door{ID: "b", Code: secrets.Mask}); err != errNoCode {
		t.Error(err)
	}
	select {
	case <-changed:
		t.Error("a refused entry is told as a change")
	default:
	}
}

// TestCopyAfterAFault: no entry is known after a reading that failed, until Refresh, which tells of it.
func TestCopyAfterAFault(t *testing.T) {
	doors, db := open(t)
	if err := save(t, doors, door{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.Writer.Exec(fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, from, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename("doors", "gates")
	doors.Committed(sqlite.Notice{changed[door]{}})
	told := doors.Changed()
	if err := doors.Refresh(t.Context()); err == nil || len(doors.Known()) > 0 || doors.Find("a") != nil {
		t.Errorf("%v, known: %+v", err, doors.Known())
	}
	select {
	case <-told:
		t.Error("a refresh that failed is told")
	default:
	}
	rename("gates", "doors")
	if err := doors.Refresh(t.Context()); err != nil || doors.Find("a") == nil {
		t.Errorf("%v, known: %+v", err, doors.Known())
	}
	select {
	case <-told:
	default:
		t.Error("a refresh is not told")
	}
	told = doors.Changed()
	if err := doors.Refresh(t.Context()); err != nil || told != doors.Changed() {
		t.Errorf("a copy that is known is read again: %v", err)
	}
}

// TestRequests: what requests are answered with, in the language of the client and with masks.
func TestRequests(t *testing.T) {
	doors, _ := open(t)
	form := func(d door, warnings []string, language msg.Language) any {
		return struct {
			door
			Warnings []string `json:"warnings,omitempty"`
		}{d, warnings}
	}
	mux := http.NewServeMux()
	a := web.Adapter{Log: slog.New(slog.DiscardHandler)}
	mux.Handle("GET /doors", web.List(a, func(r *http.Request) (web.PartReader[string], error) { return doors.List(r, form), nil }))
	mux.Handle("GET /doors/{id}", a.Handle(func(r *http.Request) (web.Reply, error) { return doors.Show(r, form) }))
	mux.Handle("PUT /doors/{id}", a.Handle(func(r *http.Request) (web.Reply, error) { return doors.Put(r, form) }))
	mux.Handle("DELETE /doors/{id}", a.Handle(doors.Remove))
	for _, test := range []struct{ request, body, want string }{
		{"GET /doors", "", `200 {"data":[]}`},
		{"PUT /doors/a", `{"id":"ignored","code":"1234","hause":1}`,
			`200 {"message":"the secondary is saved","data":{"id":"a","house":"house","code":"********","keys":["k"],"warnings":["`},
		{"PUT /doors/a", `{"code":"********","keys":[]}`, `200 {"message":"the secondary is saved","data":{"id":"a","house":"house","code":"********","keys":[]}}`},
		{"GET /doors/a", "", `200 {"data":{"id":"a","house":"house","code":"********",`},
		{"PUT /doors/b", `{}`, `200 {"message":"the secondary is saved","data":{"id":"b","house":"house","code":"","keys":["k"]}}`},
		{"PUT /doors/c", `{}`, `409 {"error":"there are`},
		{"PUT /doors/bad", `{}`, `400 `},
		{"PUT /doors/a", `{"code":7}`, `400 `},
		{"GET /doors?limit=1", "", `200 {"data":[{"id":"a","house":"house","code":"********","keys":null}],"next_cursor":"a"}`},
		{"GET /doors?cursor=a", "", `200 {"data":[{"id":"b",`},
		{"DELETE /doors/a", "", `200 {"message":"the secondary is deleted"}`},
		{"GET /doors/a", "", `404 {"error":"no such secondary"}`},
		{"DELETE /doors/a", "", `404 {"error":"no such secondary"}`},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		r := httptest.NewRequest(method, path, strings.NewReader(test.body))
		r.Header.Set("Accept-Language", "en")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s %s: %s, want %s", test.request, test.body, got, test.want)
		}
	}
}
