// Package systemd talks to the service manager: notifications
// (notify.go), the watchdog (watchdog.go), sockets that the manager opened (sockets.go)
// and priorities of log lines (journal.go). Without a manager it does nothing.
package systemd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Manager is the connection to the service manager. Without the manager's variables it does nothing.
type Manager struct {
	// Sockets has the sockets that the manager opened.
	Sockets  Sockets
	conn     *net.UnixConn // nil: the manager wants no notifications
	interval time.Duration // the longest time between two pings; 0: no watchdog
}

// variables has the manager's variables. Open removes them, because a child with them could act
// for the service.
var variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}

// Open reads the manager's variables (sd_notify(3), sd_watchdog_enabled(3),
// sd_listen_fds(3)), takes the sockets, and removes the variables from the process's
// environment. A manager that cannot be told anything is only logged, because its variables may be
// those of another program around this one. Unusable sockets are an error.
func Open(getenv func(string) string, log *slog.Logger) (*Manager, error) {
	said, err := parse(getenv, os.Getpid())
	for _, name := range variables {
		os.Unsetenv(name)
	}
	if err != nil {
		return nil, err
	}
	s := &Manager{interval: said.interval}
	if said.notify != "" {
		// The socket stays open, so that a ping does not fail when descriptors run out.
		if s.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: said.notify, Net: "unixgram"}); err != nil {
			said.faults = append(said.faults, fmt.Errorf("NOTIFY_SOCKET: %w", err))
		}
	}
	for _, fault := range said.faults {
		log.Warn(unheard, "error", fault)
	}
	if s.Sockets, err = inherit(firstSocket, said.sockets); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the connection to the manager. It leaves Sockets open.
func (m *Manager) Close() error {
	if m.conn == nil {
		return nil
	}
	return m.conn.Close()
}

// environment has the values of the variables for one process.
type environment struct {
	notify   string        // a path, or @ and an abstract name; "": no manager
	interval time.Duration // of the watchdog, 0: none
	sockets  []string      // their names, in the order of the descriptors from firstSocket on
	faults   []error       // of notify and interval, which then are empty
}

// parse reads the variables. It ignores those for another process. The error is about the sockets.
func parse(getenv func(string) string, pid int) (e environment, err error) {
	e.notify = getenv("NOTIFY_SOCKET")
	if e.notify != "" && (e.notify[0] != '/' && e.notify[0] != '@' || len(e.notify) == 1) {
		e.faults = append(e.faults, fmt.Errorf("NOTIFY_SOCKET: %q: want a path or @name", e.notify))
		e.notify = ""
	}
	if e.interval, err = parseInterval(getenv, pid); err != nil {
		e.faults = append(e.faults, err)
	}
	if e.sockets, err = parseSockets(getenv, pid); err != nil {
		return environment{}, err
	}
	return e, nil
}

// parseInterval returns the watchdog's interval, 0 without a watchdog.
func parseInterval(getenv func(string) string, pid int) (time.Duration, error) {
	text := getenv("WATCHDOG_USEC")
	if text == "" {
		return 0, nil
	}
	if own, err := forProcess(getenv, "WATCHDOG_PID", pid); err != nil || !own && getenv("WATCHDOG_PID") != "" {
		return 0, err
	}
	const most = int64(1<<63-1) / int64(time.Microsecond)
	usec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || usec < 2 || usec > most {
		return 0, fmt.Errorf("WATCHDOG_USEC: %q: want microseconds, 2 to %d", text, most)
	}
	return time.Duration(usec) * time.Microsecond, nil
}

// parseSockets returns the names of the sockets.
func parseSockets(getenv func(string) string, pid int) ([]string, error) {
	if own, err := forProcess(getenv, "LISTEN_PID", pid); err != nil || !own {
		return nil, err
	}
	count, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || count < 0 || count > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS: %q: want a number, 0 to %d", getenv("LISTEN_FDS"), maxSockets)
	}
	if count == 0 {
		return nil, nil
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	if len(names) != count {
		return nil, fmt.Errorf("LISTEN_FDNAMES: %q: want %d names with colons between (FileDescriptorName= in the socket unit)",
			getenv("LISTEN_FDNAMES"), count)
	}
	return names, nil
}

// forProcess reports whether a variable is set to the process id pid.
func forProcess(getenv func(string) string, name string, pid int) (bool, error) {
	text := getenv(name)
	if text == "" {
		return false, nil
	}
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return false, fmt.Errorf("%s: %q: want the number of a process", name, text)
	}
	return int(number) == pid, nil
}
