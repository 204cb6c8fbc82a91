package builtin

import (
	"testing"
	"time"
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
