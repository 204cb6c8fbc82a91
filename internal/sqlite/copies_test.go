package sqlite

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestRemoveKept: a copy from before an upgrade goes after 30 days, also if an older one of its version was deleted
// by hand. Copies of this version and of a newer one stay, and so do files with other names.
func TestRemoveKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		for name, age := range map[string]time.Duration{
			".v1": 31, ".v1-2": 29, ".v2": 40, ".v2-3": 31, ".v3": 99, ".v4": 99, ".v2-copy": 99, ".v1.bak": 99,
		} {
			if err := os.WriteFile(path+name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			then := time.Now().Add(-24 * time.Hour * age)
			if err := os.Chtimes(path+name, then, then); err != nil {
				t.Fatal(err)
			}
		}
		d := &Database{file: &File{target: path}, schema: Schema{Oldest: 2, Steps: make([]Step, 1)}, log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		go d.RemoveKept(ctx)
		for day, want := range []int{6, 6, 4, 4} { // the newer copy of version 1 is 30 days old on day 1, and older on day 2
			synctest.Wait()
			if left, err := filepath.Glob(path + ".v*"); err != nil || len(left) != want {
				t.Errorf("day %d: %q, %v", day, left, err)
			}
			<-time.After(24 * time.Hour)
		}
		stop()
		synctest.Wait()
	})
}
