package systemd

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// from gives the variables of a text, NAME=value separated by blanks.
func from(text string) func(string) string {
	return func(name string) string {
		for _, field := range strings.Fields(text) {
			if value, ok := strings.CutPrefix(field, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		text     string
		notify   string
		interval time.Duration
		sockets  string
		fault    string // ends the start, unless it is about the manager or the watchdog
	}{
		{"", "", 0, "", ""},
		{"NOTIFY_SOCKET=/run/systemd/notify", "/run/systemd/notify", 0, "", ""},
		{"NOTIFY_SOCKET=@abstract", "@abstract", 0, "", ""},
		{"NOTIFY_SOCKET=@", "", 0, "", `NOTIFY_SOCKET: "@": want a path or @name`},
		{"NOTIFY_SOCKET=vsock:2:1234", "", 0, "", `NOTIFY_SOCKET: "vsock:2:1234": want a path or @name`},
		{"WATCHDOG_USEC=30000000", "", 30 * time.Second, "", ""},
		{"WATCHDOG_USEC=30000000 WATCHDOG_PID=7", "", 30 * time.Second, "", ""},
		{"WATCHDOG_USEC=30000000 WATCHDOG_PID=8", "", 0, "", ""},
		{"WATCHDOG_USEC=30000000 WATCHDOG_PID=x", "", 0, "", `WATCHDOG_PID: "x": want the number of a process`},
		{"WATCHDOG_USEC=0", "", 0, "", `WATCHDOG_USEC: "0": want microseconds, 2 to 9223372036854775`},
		{"WATCHDOG_USEC=30s", "", 0, "", `WATCHDOG_USEC: "30s": want microseconds, 2 to 9223372036854775`},
		{"WATCHDOG_USEC=9223372036854776", "", 0, "", `WATCHDOG_USEC: "9223372036854776": want microseconds, 2 to 9223372036854775`},
		{"LISTEN_PID=7 LISTEN_FDS=3 LISTEN_FDNAMES=http:dns:dns", "", 0, "http,dns,dns", ""},
		{"LISTEN_PID=7 LISTEN_FDS=0", "", 0, "", ""},
		{"LISTEN_PID=8 LISTEN_FDS=3 LISTEN_FDNAMES=http:dns:dns", "", 0, "", ""},
		{"LISTEN_FDS=3 LISTEN_FDNAMES=http:dns:dns", "", 0, "", ""},
		{"LISTEN_PID=0x7 LISTEN_FDS=1", "", 0, "", `LISTEN_PID: "0x7": want the number of a process`},
		{"LISTEN_PID=7", "", 0, "", `LISTEN_FDS: "": want a number, 0 to 128`},
		{"LISTEN_PID=7 LISTEN_FDS=129", "", 0, "", `LISTEN_FDS: "129": want a number, 0 to 128`},
		{"LISTEN_PID=7 LISTEN_FDS=2 LISTEN_FDNAMES=http", "", 0, "",
			`LISTEN_FDNAMES: "http": want 2 names with colons between (FileDescriptorName= in the socket unit)`},
	} {
		e, err := parse(from(test.text), 7)
		if told := strings.HasPrefix(test.fault, "NOTIFY") || strings.HasPrefix(test.fault, "WATCHDOG"); told == (err != nil) && test.fault != "" {
			t.Errorf("%s: the start ends: %t", test.text, err != nil)
		}
		if fault := textOf(errors.Join(append(e.faults, err)...)); fault != test.fault {
			t.Errorf("%s: error %q, want %q", test.text, fault, test.fault)
		}
		if e.notify != test.notify || e.interval != test.interval || strings.Join(e.sockets, ",") != test.sockets {
			t.Errorf("%s: %+v", test.text, e)
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// For all variables parsing ends, returns nothing with an error, and returns only well-formed values.
func FuzzEnvironment(f *testing.F) {
	f.Add("/run/systemd/notify", "30000000", "7", "7", "2", "http:dns")
	f.Add("@", "-1", "", "+7", "0129", ":")
	f.Fuzz(func(t *testing.T, notify, usec, watched, listener, count, names string) {
		variables := map[string]string{
			"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": usec, "WATCHDOG_PID": watched,
			"LISTEN_PID": listener, "LISTEN_FDS": count, "LISTEN_FDNAMES": names,
		}
		e, err := parse(func(name string) string { return variables[name] }, 7)
		switch {
		case err != nil && (e.notify != "" || e.interval != 0 || e.sockets != nil):
			t.Errorf("%+v with %v", e, err)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("an error of two lines: %v", err)
		case e.interval < 0, len(e.sockets) > maxSockets, e.sockets != nil && listener == "":
			t.Errorf("%+v", e)
		case e.sockets != nil && strings.Join(e.sockets, ":") != names:
			t.Errorf("sockets %q of %q", e.sockets, names)
		}
	})
}
