package dbconn

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Threads have no memory of their own from glibc, which would be in pieces of 64 MB: a small
// part that is used, and behind it one that is only kept free. Go's begin with 4 MB.
func TestSharedMemory(t *testing.T) {
	g, _ := newGate(t, func() error { return nil })
	reader := g.Readers(2)
	defer reader.Close()
	count(t, reader)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	const piece, ofGo = 64 << 20, 4 << 20
	var begin, middle uint64 // of a part that is used, and its end
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var may string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &may); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if may == "---p" && from == middle && begin%piece == 0 && to == begin+piece && middle-begin < ofGo {
			t.Errorf("a thread has memory of its own: %s", line)
		}
		begin, middle = from, to
	}
}
