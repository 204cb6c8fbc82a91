package systemd

import (
	"fmt"
	"strings"
	"time"
)

// sendTime bounds a write to a manager that does not read.
const sendTime = 5 * time.Second

// send sends lines of the form NAME=value to the manager, in one datagram. Without a manager it does nothing.
func (s *Service) send(lines ...string) error {
	if s.conn == nil {
		return nil
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	if _, err := s.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// Ready tells the manager that the program serves. Call it after the start and after each Reloading.
func (s *Service) Ready(status string) error { return s.send("READY=1", statusLine(status)) }

// Reloading tells the manager that the program reads its files again. Call Ready afterwards.
func (s *Service) Reloading() error {
	lines := []string{"RELOADING=1", statusLine("reading files again")}
	if now, ok := monotonic(); ok {
		lines = append(lines, fmt.Sprintf("MONOTONIC_USEC=%d", now.Microseconds()))
	}
	return s.send(lines...)
}

// Stopping tells the manager that the program stops.
func (s *Service) Stopping() error { return s.send("STOPPING=1", statusLine("stopping")) }

// Status sets the line that "systemctl status" shows.
func (s *Service) Status(text string) error { return s.send(statusLine(text)) }

// statusLine returns a status without control characters, because a newline would begin another variable.
func statusLine(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
