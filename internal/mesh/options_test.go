package mesh

import (
	"strings"
	"testing"
)

// TestParseCheck reads checks with defaults, and sees each wrong member refused by its name.
func TestParseCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:               "",
		`{"kind": "none"}`: `{"kind":"none","interval":10,"fall":3,"rise":2}`,
		`{"kind": "ws", "interval": 5, "fall": 1, "rise": 10, "path": "/a?b"}`: `{"kind":"ws","interval":5,"fall":1,"rise":10,"path":"/a?b"}`,
		`{"kind": "tcp", "rise": null}`:                                        `{"kind":"tcp","interval":10,"fall":3,"rise":2}`,
		`{"kind": "tcp", "interval": 3600, "fall": 10, "rise": 1}`:             `{"kind":"tcp","interval":3600,"fall":10,"rise":1}`,
	} {
		c, err := ParseCheck([]byte(text))
		if err != nil || c.Text() != want {
			t.Errorf("ParseCheck(%s) = %s, %v, want %s", text, c.Text(), err, want)
		}
	}
	for text, member := range map[string]string{
		`[]`:                                   "check ",
		`{"interval": 10}`:                     "check.kind",
		`{"kind": "udp"}`:                      "check.kind",
		`{"kind": "tcp", "interval": 4}`:       "check.interval",
		`{"kind": "tcp", "interval": 3601}`:    "check.interval",
		`{"kind": "tcp", "interval": "10"}`:    "check.interval",
		`{"kind": "tcp", "interval": 10.5}`:    "check.interval",
		`{"kind": "tcp", "fall": 0}`:           "check.fall",
		`{"kind": "tcp", "fall": 11}`:          "check.fall",
		`{"kind": "tcp", "rise": 0}`:           "check.rise",
		`{"kind": "tcp", "rise": 11}`:          "check.rise",
		`{"kind": "http", "path": "x"}`:        "check.path",
		`{"kind": "http", "path": "/ HTTP/1"}`: "check.path",
		`{"kind": "tcp", "intervall": 10}`:     `check."intervall"`,
		`{"kind": "tcp", "Fall": null}`:        `check."Fall"`,
	} {
		_, err := ParseCheck([]byte(text))
		if err == nil || !strings.Contains(err.Error(), member) {
			t.Errorf("ParseCheck(%s): %v, want a refusal of %s", text, err, member)
		}
	}
}

// TestLongest has the longest path of a check and the longest id of a service, and refuses one octet more.
func TestLongest(t *testing.T) {
	for _, over := range []int{0, 1} {
		if _, err := ParseCheck([]byte(`{"kind": "http", "path": "/` + strings.Repeat("a", 254+over) + `"}`)); (err == nil) != (over == 0) {
			t.Errorf("a path of %d octets: %v", 255+over, err)
		}
		if ok := GoodServiceID(strings.Repeat("a", 128+over)); ok != (over == 0) {
			t.Errorf("an id of %d octets: %v", 128+over, ok)
		}
	}
}
