package web

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/test/support"
)

// patience bounds every wait; soon is less than any time that the server gives a client.
const (
	patience = 30 * time.Second
	soon     = headerTime - time.Second
)

// TestMain lets eight tests run at once, because those that are parallel wait for limits of the server.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// echo answers with the body of the request, except for requests that it refuses unread.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Method != "POST" {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	w.Write(body)
}

func listenTCP(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// run serves until it is told to stop, which waits for the end.
func run(t testing.TB, c ServerConfig, h Handlers) (stop func()) {
	t.Helper()
	c.Log, c.ShutdownTime = slog.New(slog.DiscardHandler), patience
	s := NewServer(c)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func dial(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// A request whose body does not come is answered at once if the handler does not read the body, and
// the connection ends with the answer.
func TestUnsentBody(t *testing.T) {
	l := listenTCP(t)
	run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(echo)})
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 70<<10, strings.Repeat("x", 70<<10))
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"refused":                {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", 405},
		"refused, in part":       {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", 405},
		"refused, chunked":       {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 405},
		"refused, expecting":     {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n", 405},
		"refused, large":         {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n", 405},
		"chunked over the limit": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, 413},
		"of a length, over it":   {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 70<<10), 413},
		"expecting, over it":     {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n" + chunk, 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the server keeps most of them for a second
			c := dial(t, l)
			begun := time.Now()
			if _, err := io.WriteString(c, test.request); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			response, err := http.ReadResponse(in, nil)
			for err == nil && response.StatusCode == http.StatusContinue {
				response, err = http.ReadResponse(in, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); response.StatusCode != test.status || !response.Close || took >= bodyTime {
				t.Errorf("status %d, Connection: close %t, after %v", response.StatusCode, response.Close, took)
			}
			if _, err := io.Copy(io.Discard, in); err != nil {
				t.Errorf("the connection does not end in good order: %v", err)
			}
		})
	}
}

// A connection whose requests have come as a whole is kept, and a client that waits for
// a word before it sends the body gets it.
func TestKeptConnection(t *testing.T) {
	l := listenTCP(t)
	run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(echo)})
	c := dial(t, l)
	in := bufio.NewReader(c)
	for range 3 {
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode != http.StatusContinue {
			t.Fatalf("%+v, %v", response, err)
		}
		io.WriteString(c, "abc")
		response, err = http.ReadResponse(in, nil)
		if err != nil || response.Close {
			t.Fatalf("%+v, %v", response, err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != "abc" || err != nil {
			t.Fatalf("%q, %v", body, err)
		}
	}
}

// inherited is a socket as another process has it.
func inherited(t testing.TB, l *net.TCPListener) net.Listener {
	t.Helper()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	same, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	return same
}

// Where the sockets stay open, no request is lost in twenty restarts, over new
// connections and over kept ones.
func TestRestarts(t *testing.T) {
	l := listenTCP(t)
	ctx, cancel := context.WithCancel(t.Context())
	var answered, failed atomic.Int64
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				begun := time.Now()
				err := ask(client, l.Addr().String())
				if kept := i%2 == 1; kept && errors.Is(err, io.EOF) && time.Since(begun) >= silentTime {
					continue // a client that gets no processor is silent, and its connection may end
				}
				if err != nil {
					t.Errorf("after %d requests: %v", answered.Load(), err)
					failed.Add(1)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 20 {
		stop := run(t, ServerConfig{Inherited: []net.Listener{inherited(t, l)}}, Handlers{TCP: http.HandlerFunc(echo)})
		for before := answered.Load(); answered.Load() < before+200 && failed.Load() == 0; {
			wait(t)
		}
		stop()
	}
	stop := run(t, ServerConfig{Inherited: []net.Listener{inherited(t, l)}}, Handlers{TCP: http.HandlerFunc(echo)})
	cancel()
	load.Wait()
	stop()
	t.Logf("%d requests answered, %d failed", answered.Load(), failed.Load())
}

// ask has a small body echoed.
func ask(client *http.Client, address string) error {
	// A body that cannot be had again: the transport does not ask twice.
	response, err := client.Post("http://"+address+"/", "", io.MultiReader(strings.NewReader("abc")))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "abc" {
		return fmt.Errorf("status %d, %q, %v", response.StatusCode, body, err)
	}
	return nil
}

// wait lets others run.
func wait(t testing.TB) {
	t.Helper()
	select {
	case <-time.After(time.Millisecond):
	case <-t.Context().Done():
		t.Fatal("the test ends")
	}
}

// What waits in a socket of this program's own is answered before it is closed, and what
// is in work is finished.
func TestStop(t *testing.T) {
	l := listenTCP(t)
	held := make(chan struct{})
	begun := make(chan struct{}, 1)
	stop := run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-held
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})})
	c := dial(t, l)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	for { // until the server accepts no more connections
		more, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		more.Close()
	}
	close(held)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || response.StatusCode != 200 || !response.Close {
		t.Errorf("%+v, %v", response, err)
	}
	<-stopped
}

// asked is the context of a request that a server works on.
func asked(t *testing.T, s *Server) context.Context {
	server, client := net.Pipe()
	t.Cleanup(func() { client.Close() })
	c := s.limiter.Admit(server)
	t.Cleanup(func() { c.Close() })
	c.Work(true)
	return context.WithValue(context.WithValue(t.Context(), serverKey{}, s), connKey{}, c)
}

// A wait for others ends with the patience of a server that is being stopped.
func TestPatience(t *testing.T) {
	s := NewServer(ServerConfig{})
	ctx, cancel := WithPatience(asked(t, s), time.Now().Add(time.Hour))
	defer cancel()
	if ctx.Err() != nil {
		t.Fatal("no patience at all")
	}
	s.hurry()
	<-ctx.Done()
	if t.Context().Err() != nil {
		t.Error("the request has ended with it")
	}
}

// An answer without an end ends when the server begins to stop.
func TestRunning(t *testing.T) {
	s := NewServer(ServerConfig{})
	ctx, cancel := Running(asked(t, s))
	defer cancel()
	if s.hurry(); ctx.Err() != nil {
		t.Fatal("it has ended before the stop")
	}
	s.halt()
	<-ctx.Done()
}

// The requests of a client that wait for other work keep no turn: with as many as one client may have,
// and with further ones that do not wait, a change is answered at once.
func TestWaitingKeepsNoTurn(t *testing.T) {
	l := listenTCP(t)
	waits, end := make(chan error, 1), make(chan struct{})
	run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			ctx, cancel := WithPatience(r.Context(), time.Now().Add(time.Hour))
			defer cancel()
			waits <- context.Cause(ctx)
			select {
			case <-end:
			case <-ctx.Done():
			}
		}
	})})
	most := connlimit.Places(DescriptorEighths) / 2 / 2 * 3 / 4
	var waiting []net.Conn
	for n := range most + 20 {
		c := dial(t, l)
		io.WriteString(c, "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		var want error
		if n >= most {
			want = ErrCrowded
		}
		if err := support.Receive(t, waits); err != want {
			t.Fatalf("wait %d of %d: %v", n, most, err)
		}
		waiting = append(waiting, c)
	}
	answered := func(c net.Conn) {
		t.Helper()
		if response, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || response.StatusCode != 200 {
			t.Fatalf("%+v, %v", response, err)
		}
	}
	change := dial(t, l)
	io.WriteString(change, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
	answered(change)
	close(end)
	for _, c := range waiting {
		answered(c)
	}
}

func TestSockets(t *testing.T) {
	for address, want := range map[string]string{
		"unix:": "is abstract", "unix:@api": "is abstract", "unix:\x00api": "is abstract", "0.0.0.0:0": "-token-file is required",
	} {
		if _, err := Listen(ListenConfig{List: []string{"127.0.0.1:0", address}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	abstract, err := net.Listen("unix", "@meshddns-test")
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	if Guarded(abstract, true) == nil {
		t.Error("an inherited abstract socket is taken")
	}
	path := filepath.Join(t.TempDir(), "api.sock")
	group := "12345"
	if os.Getuid() != 0 {
		group = fmt.Sprint(os.Getgid())
	}
	listeners, err := Listen(ListenConfig{List: []string{"unix:" + path, "127.0.0.1:0", "127.0.0.1:0"}, Group: group})
	if err != nil {
		t.Fatal(err)
	}
	run(t, ServerConfig{Listeners: listeners}, Handlers{TCP: http.NotFoundHandler(), Unix: http.HandlerFunc(echo)})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != socketMode || fmt.Sprint(info.Sys().(*syscall.Stat_t).Gid) != group {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for i, want := range []string{"200", "404", "404"} {
		c := dial(t, listeners[i])
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		if response, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || !strings.HasPrefix(response.Status, want) {
			t.Errorf("%s: %v, %v; want %s", listeners[i].Addr(), response, err, want)
		}
	}
	if _, err := Listen(ListenConfig{List: []string{"unix:" + path}}); err == nil || !strings.Contains(err.Error(), "another program listens") {
		t.Errorf("a socket in use: %v", err)
	}
	if _, err := Listen(ListenConfig{List: []string{"unix:" + path + "2"}, Group: "no such group"}); err == nil || !strings.Contains(err.Error(), "-socket-group") {
		t.Errorf("a group that is not: %v", err)
	}
}

// 0.0.0.0 is IPv4 only, so it does not open the API to IPv6.
func TestWildcardOfIPv4(t *testing.T) {
	listeners, err := Listen(ListenConfig{List: []string{"0.0.0.0:0"}, Token: true})
	if err != nil {
		t.Fatal(err)
	}
	defer listeners[0].Close()
	if got := listeners[0].Addr().String(); !strings.HasPrefix(got, "0.0.0.0:") {
		t.Errorf("listening on %s", got)
	}
}

// Until its group is right, a socket is for its owner alone.
func TestSocketOfAnotherFile(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{target, link} {
		if giveToGroup(path, os.Getgid()) == nil {
			t.Errorf("%s is given to the group", path)
		}
	}
	if info, _ := os.Stat(target); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// A request that came with the one before it is in work when the server is stopped: it is
// answered.
func TestStopWithPipelinedRequest(t *testing.T) {
	l := listenTCP(t)
	held, begun := make(chan struct{}), make(chan struct{}, 2)
	stop := run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		if r.URL.Path == "/second" {
			<-held
		}
		io.WriteString(w, r.URL.Path)
	})})
	c, witness := dial(t, l), dial(t, l)
	io.WriteString(c, "GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
	<-begun
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	if _, err := witness.Read(make([]byte, 1)); err != io.EOF { // an idle connection is closed
		t.Fatal(err)
	}
	close(held)
	in := bufio.NewReader(c)
	for _, want := range []string{"/first", "/second"} {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if body, err := io.ReadAll(response.Body); string(body) != want || err != nil {
			t.Errorf("%q, %v; want %q", body, err, want)
		}
	}
	<-stopped
}

// However many requests of a client wait for the database, one that reads has its turn.
func TestReadsBesideChanges(t *testing.T) {
	l := listenTCP(t)
	held := make(chan struct{})
	s := NewServer(ServerConfig{Listeners: []net.Listener{l}, ShutdownTime: patience, Log: slog.New(slog.DiscardHandler)})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			<-held
		}
	})
	s.limiter = newLimiter(16)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, Handlers{TCP: handler}) }()
	const changes = 8
	var all []net.Conn
	for range changes {
		c := dial(t, l)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		all = append(all, c)
	}
	for working := 0; working < 3; wait(t) { // all that one client may have
		_, working, _ = s.limiter.Counts()
	}
	reader := dial(t, l)
	io.WriteString(reader, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	if response, err := http.ReadResponse(bufio.NewReader(reader), nil); err != nil || response.StatusCode != 200 {
		t.Errorf("a request that reads: %v, %v", response, err)
	}
	close(held)
	for _, c := range all {
		if response, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || response.StatusCode != 200 {
			t.Errorf("a request that changes something: %v, %v", response, err)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A socket that answers with anything but a refusal may be in use, and keeps its file.
func TestLiveSocketStays(t *testing.T) {
	for name, kind := range map[string]int{"full": syscall.SOCK_STREAM, "datagrams": syscall.SOCK_DGRAM, "packets": syscall.SOCK_SEQPACKET} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.sock")
			fd, err := syscall.Socket(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
				t.Fatal(err)
			}
			if kind != syscall.SOCK_DGRAM {
				if err := syscall.Listen(fd, 0); err != nil {
					t.Fatal(err)
				}
			}
			for kind == syscall.SOCK_STREAM { // until no more have room
				c, err := net.Dial("unix", path)
				if err != nil {
					break
				}
				defer c.Close()
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			listeners, err := Listen(ListenConfig{List: []string{"unix:" + path}})
			for _, l := range listeners {
				l.Close()
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("listened on: %v", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("its file is gone: %v", err)
			}
		})
	}
}

// What an end by SIGKILL has left is replaced.
func TestDeadSocketGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	listeners, err := Listen(ListenConfig{List: []string{"unix:" + path}})
	if err != nil {
		t.Fatal(err)
	}
	listeners[0].Close()
}

// TestHeaderLimit: a request has at most 16 KiB before its body.
func TestHeaderLimit(t *testing.T) {
	l := listenTCP(t)
	run(t, ServerConfig{Listeners: []net.Listener{l}}, Handlers{TCP: http.HandlerFunc(echo)})
	for size, want := range map[int]int{16 << 10: http.StatusMethodNotAllowed, 16<<10 + 1: http.StatusRequestHeaderFieldsTooLarge} {
		c := dial(t, l)
		const begin, end = "GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n\r\n"
		if _, err := io.WriteString(c, begin+strings.Repeat("x", size-len(begin+end))+end); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d octets: %d, want %d", size, response.StatusCode, want)
		}
	}
}
