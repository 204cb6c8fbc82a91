package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// sendTime bounds a write to a manager that does not read.
const sendTime = 5 * time.Second

// send sends lines of the form NAME=value to the manager, in one datagram. Without a manager it does nothing.
func (m *Manager) send(lines ...string) error {
	if m.conn == nil {
		return nil
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	if _, err := m.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// Ready tells the manager that the program serves. Call it after the start and after each Reloading.
func (m *Manager) Ready(status string) error { return m.send("READY=1", statusLine(status)) }

// Reloading tells the manager that the program reads its files again. Call Ready afterwards.
func (m *Manager) Reloading() error {
	lines := []string{"RELOADING=1", statusLine("reading files again")}
	if now, ok := monotonic(); ok {
		lines = append(lines, fmt.Sprintf("MONOTONIC_USEC=%d", now.Microseconds()))
	}
	return m.send(lines...)
}

// Stopping tells the manager that the program stops.
func (m *Manager) Stopping() error { return m.send("STOPPING=1", statusLine("stopping")) }

// Status sets the line that "systemctl status" shows.
func (m *Manager) Status(text string) error { return m.send(statusLine(text)) }

// statusLine returns a status without control characters, because a newline would begin another variable.
func statusLine(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

const clockMonotonic = 1 // <linux/time.h>

// monotonic returns the time of CLOCK_MONOTONIC, by which the manager distinguishes two reloads
// (sd_notify(3)).
func monotonic() (time.Duration, bool) {
	var now syscall.Timespec
	_, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano()), fault == 0
}

// Parts of the watchdog's interval.
const (
	pingPart  = 2  // between pings (recommended by sd_watchdog_enabled(3))
	retryPart = 10 // after a failed read, so that several retries fit into an interval
)

// Watch pings the watchdog until ctx ends. It calls read, which queries the database, before each ping.
// If read fails or hangs, even past its context, Watch sends no ping, and the manager
// restarts the program. Without a watchdog Watch returns at once.
func (m *Manager) Watch(ctx context.Context, read func(context.Context) error, log *slog.Logger) {
	if m.interval == 0 || m.conn == nil {
		return
	}
	failing := false
	for ctx.Err() == nil {
		wait := m.interval / pingPart
		err := m.ping(ctx, read)
		switch {
		case err != nil && ctx.Err() == nil:
			wait = m.interval / retryPart
			if !failing {
				log.Error("watchdog: no ping", "error", err)
			}
		case failing:
			log.Info("watchdog: pings again")
		}
		failing = err != nil
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (m *Manager) ping(ctx context.Context, read func(context.Context) error) error {
	limit, cancel := context.WithTimeout(ctx, m.interval/pingPart)
	defer cancel()
	if err := read(limit); err != nil {
		return err
	}
	return m.send("WATCHDOG=1")
}
