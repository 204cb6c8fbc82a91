package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"meshddns/test/support"
)

// TestVersionOf: a file without tables is not foreign, even if Litestream was first. A file with other
// tables only, or with the id of another application, is foreign.
func TestVersionOf(t *testing.T) {
	for _, c := range []struct {
		statements string
		version    int
		foreign    bool
	}{
		{"", 0, false},
		{"CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)", 0, false},
		{"CREATE TABLE appliance (x); PRAGMA user_version = 6", 6, false},
		{fmt.Sprintf("CREATE TABLE usages (x); PRAGMA user_version = 99; PRAGMA application_id = %d", ApplicationID), 99, false},
		{"CREATE TABLE bookmarks (x)", 0, true},
		{"CREATE TABLE appliance (x)", 0, true},
		{"CREATE TABLE bookmarks (x); PRAGMA user_version = 6", 0, true},
		{"PRAGMA user_version = 6", 6, false},
		{"PRAGMA application_id = 7", 0, true},
		{"CREATE TABLE appliance (x); PRAGMA user_version = -1", 0, true},
		{"CREATE TABLE appliance (x); PRAGMA user_version = 6; PRAGMA application_id = 7", 0, true},
	} {
		db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "a.db"), "")
		if _, err := db.Exec(c.statements); err != nil {
			t.Fatal(err)
		}
		if version, err := (Schema{Own: []string{"appliance", "usages"}}).VersionOf(t.Context(), db); version != c.version || errors.Is(err, ErrForeign) != c.foreign {
			t.Errorf("%s: version %d, %v", c.statements, version, err)
		}
	}
}
