package systemd

import (
	"fmt"
	"strings"
	"time"
)

// sendTime bounds the wait for a manager that does not read.
const sendTime = 5 * time.Second

// send tells the manager lines of the form NAME=value, all in one datagram.
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

// Ready says that the program serves: after its start, and after each Reloading.
func (s *Service) Ready(status string) error { return s.send("READY=1", statusLine(status)) }

// Reloading says that the program reads its files again. Ready must follow.
func (s *Service) Reloading() error {
	lines := []string{"RELOADING=1", statusLine("reading files again")}
	if now, ok := monotonic(); ok {
		lines = append(lines, fmt.Sprintf("MONOTONIC_USEC=%d", now.Microseconds()))
	}
	return s.send(lines...)
}

// Stopping says that the program has begun to end.
func (s *Service) Stopping() error { return s.send("STOPPING=1", statusLine("stopping")) }

// Status is the line that "systemctl status" shows.
func (s *Service) Status(text string) error { return s.send(statusLine(text)) }

// statusLine keeps a text in its line: behind a newline it would be another message.
func statusLine(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
