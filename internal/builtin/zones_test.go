package builtin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/sqlite"
)

func TestNextSerial(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, test := range []struct{ serial, want uint32 }{
		{0, 1_700_000_000},
		{1_699_999_998, 1_700_000_000},
		{1_700_000_000, 1_700_000_001},                     // two changes in a second
		{1_800_000_000, 1_800_000_001},                     // the clock was ahead
		{1_700_000_000 + 1<<31 - 1, 1_700_000_000 + 1<<31}, // as far ahead as can be
		{1_700_000_000 + 1<<31 + 1, 1_700_000_000},         // so far ahead that it is behind (RFC 1982)
		{1<<32 - 1, 1_700_000_000},
	} {
		if got := NextSerial(test.serial, at); got != test.want {
			t.Errorf("after %d comes %d, want %d", test.serial, got, test.want)
		}
	}
	if got := NextSerial(1<<32-1, time.Unix(1<<32-5, 0)); got != 1 {
		t.Errorf("after the last one comes %d, want 1", got)
	}
}

// hanging is a database that does not answer.
type hanging struct{}

func (hanging) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Driver() driver.Driver { return nil }

// A database that hangs costs a query AnswerTime.
func TestLookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sql.OpenDB(hanging{})
		defer reader.Close()
		begun := time.Now()
		_, err := Zones{Store: &Table{db: &sqlite.Database{Reader: reader}}}.Look(t.Context(), []byte("\x01a\x00"), nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != nameserver.AnswerTime {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// Names as records have them are names in wire form and back.
func TestAppendWire(t *testing.T) {
	for _, name := range []string{"com", "_mesh.office.example.com", `a\.b.example.com`, `\000\255\\.x`, strings.Repeat("a.", 126) + "b"} {
		wire, err := dns.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		key := wireKey(wire)
		if got, ok := appendWire([]byte("x"), key); !ok || string(got) != "x"+string(wire) {
			t.Errorf("%q is %q, %t, want %q", key, got, ok, wire)
		}
	}
	for _, key := range []string{"", ".", "a.", ".a", "a..b", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "b", `a\`, `a\1`, `\097`, `A\.`} {
		if got, ok := appendWire(nil, key); ok {
			t.Errorf("%q is %q", key, got)
		}
	}
}
