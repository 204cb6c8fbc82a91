package systemd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// database is what the watchdog reads: it answers, fails or hangs as it is told.
type database struct {
	mutex sync.Mutex
	err   error
	hang  chan struct{} // nil: it does not
}

func (d *database) read(context.Context) error {
	d.mutex.Lock()
	err, hang := d.err, d.hang
	d.mutex.Unlock()
	if hang != nil {
		<-hang // even against its context
	}
	return err
}

func (d *database) is(err error, hang chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.err, d.hang = err, hang
}

// watched runs a watchdog of ten seconds in a bubble, and ends it.
func watched(t *testing.T, test func(m *manager, d *database, log *bytes.Buffer, pass func(time.Duration))) {
	path := filepath.Join(t.TempDir(), "notify")
	m := listen(t, path)
	s := service(t, "WATCHDOG_USEC=10000000 NOTIFY_SOCKET="+path)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		d := &database{}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Watch(ctx, d.read, slog.New(slog.NewTextHandler(&log, nil)))
		}()
		synctest.Wait()
		test(m, d, &log, func(d time.Duration) { <-time.After(d); synctest.Wait() })
		cancel()
		<-ended
		m.told()
	})
}

const ping = "WATCHDOG=1"

func TestWatchdogPingsTwiceAnInterval(t *testing.T) {
	watched(t, func(m *manager, _ *database, _ *bytes.Buffer, pass func(time.Duration)) {
		m.wants(ping)
		pass(5*time.Second - time.Nanosecond)
		m.wants()
		pass(time.Nanosecond)
		m.wants(ping)
		pass(20 * time.Second)
		m.wants(ping, ping, ping, ping)
	})
}

func TestWatchdogHungRead(t *testing.T) {
	watched(t, func(m *manager, d *database, _ *bytes.Buffer, pass func(time.Duration)) {
		m.wants(ping)
		hang := make(chan struct{})
		d.is(nil, hang)
		pass(time.Hour)
		m.wants()
		d.is(nil, nil)
		close(hang)
		pass(0)
		m.wants(ping)
	})
}

func TestWatchdogFailedRead(t *testing.T) {
	watched(t, func(m *manager, d *database, log *bytes.Buffer, pass func(time.Duration)) {
		m.wants(ping)
		d.is(errors.New("disk I/O error"), nil)
		pass(8 * time.Second)
		m.wants()
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "disk I/O error") {
			t.Errorf("log: %s", log)
		}
		d.is(nil, nil)
		pass(time.Second) // in time: the manager acts ten seconds after the last ping
		m.wants(ping)
		if !strings.Contains(log.String(), "pings again") {
			t.Errorf("log: %s", log)
		}
	})
}

// Without an interval for this process, and without a manager, Watch returns at once.
func TestNoWatchdog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	m := listen(t, path)
	for _, text := range []string{"", "NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=10000000", "WATCHDOG_USEC=10000000 WATCHDOG_PID=1 NOTIFY_SOCKET=" + path} {
		service(t, text).Watch(t.Context(), func(context.Context) error { panic("it reads") }, nil)
	}
	m.wants()
}
