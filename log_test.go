package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The journal has the time of each line already, so a line of text has none there. JSON keeps its
// time, and so does text that goes elsewhere.
func TestLogTime(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	info, err := write.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	journal := []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino)}
	lines := bufio.NewReader(read)
	for _, test := range []struct {
		environ      []string
		format, want string
	}{
		{journal, "text", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "json", `<4>{"time":"`},
		{nil, "text", "time="},
		{nil, "json", `{"time":"`},
	} {
		process{environ: test.environ, stderr: write}.newLog(test.format).Warn("m", slog.Group("g", "time", 1))
		if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, test.want) {
			t.Errorf("%v, %s: %q, %v, want %q", test.environ, test.format, got, err, test.want)
		}
	}
}
