package systemd

import (
	"context"
	"log/slog"
	"time"
)

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
