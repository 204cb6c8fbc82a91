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
func (s *Service) Watch(ctx context.Context, read func(context.Context) error, log *slog.Logger) {
	if s.interval == 0 || s.conn == nil {
		return
	}
	failing := false
	for ctx.Err() == nil {
		wait := s.interval / pingPart
		err := s.ping(ctx, read)
		switch {
		case err != nil && ctx.Err() == nil:
			wait = s.interval / retryPart
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

func (s *Service) ping(ctx context.Context, read func(context.Context) error) error {
	limit, cancel := context.WithTimeout(ctx, s.interval/pingPart)
	defer cancel()
	if err := read(limit); err != nil {
		return err
	}
	return s.send("WATCHDOG=1")
}
