package term

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Replica asks Litestream over its control socket. Path is that of the database in Litestream's configuration, to the letter.
type Replica struct {
	Socket, Path string
	mu, turn     sync.Mutex
	next         chan error // of the call to Litestream that has not begun
}

// Durable returns two functions, nil without a socket: synced waits until all commits are in the replica, durable also until a term
// is known to last.
func Durable(socket, path string, t *Term) (synced, durable func(context.Context) error) {
	if socket == "" {
		return nil, nil
	}
	path, _ = filepath.Abs(path) // Litestream compares texts
	r := &Replica{Socket: socket, Path: path}
	return r.Sync, func(ctx context.Context) error {
		if err := r.Sync(ctx); err != nil {
			return err
		}
		return t.Renewed(ctx)
	}
}

// Sync waits until the replica has each commit that returned before Sync was called. A call to Litestream serves all that wait when it
// begins. One that fails is made again until ctx ends; the error then says what Litestream said.
func (r *Replica) Sync(ctx context.Context) (err error) {
	for err = fmt.Errorf("it has not answered"); err != nil; {
		r.mu.Lock()
		if r.next == nil {
			r.next = make(chan error, 1)
			go r.run(r.next)
		}
		call := r.next
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; Litestream: %v", context.Cause(ctx), err)
		case err = <-call:
			call <- err // for the others
		}
	}
	return nil
}

// run has no time limit: Litestream 0.5.18 may lose its hold on the WAL when a caller leaves during its checkpoint (db.go, execCheckpoint).
func (r *Replica) run(call chan<- error) {
	r.turn.Lock() // one goroutine runs and one waits, however many call Sync
	pause := time.Duration(0)
	defer func() { time.AfterFunc(pause, r.turn.Unlock) }()
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", r.Socket) }
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: 4096}}
	answer, err := client.Post("http://litestream/sync", "", strings.NewReader(fmt.Sprintf(`{"path": %q, "wait": true, "timeout": 86400}`, r.Path)))
	if err == nil {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		var said struct{ TXID, Replicated_TXID uint64 } // a replica that is ahead has the changes of another database
		if json.Unmarshal(text, &said) != nil || answer.StatusCode != http.StatusOK || said.TXID == 0 || said.Replicated_TXID > said.TXID {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
	}
	if call <- err; err != nil {
		pause = time.Second / 4 // before the next call
	}
}
