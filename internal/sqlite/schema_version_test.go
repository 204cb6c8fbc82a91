package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"meshddns/test/support"
)

// TestVersionOf: a file without tables is not foreign, even if Litestream was first. A file with other
// tables only, or with the id of another application, is foreign. A version before the oldest one is old.
func TestVersionOf(t *testing.T) {
	for _, c := range []struct {
		statements string
		version    int
		want       error
	}{
		{"", 0, nil},
		{"CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)", 0, nil},
		{"CREATE TABLE appliance (x); PRAGMA user_version = 6", 6, nil},
		{fmt.Sprintf("CREATE TABLE usages (x); PRAGMA user_version = 99; PRAGMA application_id = %d", ApplicationID), 99, nil},
		{"CREATE TABLE appliance (x); PRAGMA user_version = 5", 0, ErrOld},
		{"PRAGMA user_version = 1", 0, ErrOld},
		{"CREATE TABLE bookmarks (x); PRAGMA user_version = 5", 0, ErrForeign},
		{"CREATE TABLE bookmarks (x)", 0, ErrForeign},
		{"CREATE TABLE appliance (x)", 0, ErrForeign},
		{"CREATE TABLE bookmarks (x); PRAGMA user_version = 6", 0, ErrForeign},
		{"PRAGMA user_version = 6", 6, nil},
		{"PRAGMA application_id = 7", 0, ErrForeign},
		{"CREATE TABLE appliance (x); PRAGMA user_version = -1", 0, ErrForeign},
		{"CREATE TABLE appliance (x); PRAGMA user_version = 6; PRAGMA application_id = 7", 0, ErrForeign},
	} {
		db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "")
		if _, err := db.Exec(c.statements); err != nil {
			t.Fatal(err)
		}
		if version, err := (Schema{Own: []string{"appliance", "usages"}, Oldest: 6}).VersionOf(t.Context(), db); version != c.version || !errors.Is(err, c.want) {
			t.Errorf("%s: version %d, %v", c.statements, version, err)
		}
	}
}
