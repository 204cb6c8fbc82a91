package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is clients that ask without pause, each on a connection of its own, and
// take as little of the processor as they can: what they take the server lacks.
type load struct {
	clients int
	request func(to []byte, n int64) []byte // appends the request of a number
	numbers *atomic.Int64                   // the next request's; nil: every run begins anew
}

// answered is what came of a load.
type answered struct {
	requests int
	took     time.Duration
	delays   []time.Duration // of each request, in order of length
}

// rate is in requests a second.
func (a answered) rate() float64 { return float64(a.requests) / a.took.Seconds() }

// permille gives the delay that so many of a thousand requests stay under.
func (a answered) permille(n int) time.Duration { return a.delays[(len(a.delays)-1)*n/1000] }

// during asks for a time.
func (l load) during(t testing.TB, address string, so time.Duration) answered {
	t.Helper()
	end := time.Now().Add(so)
	return l.until(t, address, func() bool { return time.Now().After(end) })
}

// times asks for a number of times, all clients together.
func (l load) times(t testing.TB, address string, n int) answered {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	return l.until(t, address, func() bool { return left.Add(-1) < 0 })
}

// until asks until it is told that this is enough.
func (l load) until(t testing.TB, address string, enough func() bool) answered {
	t.Helper()
	if l.numbers == nil {
		l.numbers = new(atomic.Int64)
	}
	delays, faults := make([][]time.Duration, l.clients), make([]error, l.clients)
	began := time.Now()
	var clients sync.WaitGroup
	for i := range l.clients {
		clients.Go(func() { delays[i], faults[i] = l.client(address, enough) })
	}
	clients.Wait()
	a := answered{took: time.Since(began), delays: slices.Concat(delays...)}
	for _, err := range faults {
		if err != nil {
			t.Fatal(err)
		}
	}
	if a.requests = len(a.delays); a.requests == 0 {
		t.Fatalf("%s has not answered", address)
	}
	slices.Sort(a.delays)
	return a
}

func (l load) client(address string, enough func() bool) (delays []time.Duration, err error) {
	conn, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * limit)); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	var request []byte
	for !enough() {
		request = l.request(request[:0], l.numbers.Add(1))
		began := time.Now()
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		if err := readAnswer(reader); err != nil {
			return nil, fmt.Errorf("%s: %w", request, err)
		}
		delays = append(delays, time.Since(began))
	}
	return delays, nil
}

// readAnswer reads an answer that must be a success and have a length.
func readAnswer(r *bufio.Reader) error {
	status, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	good, fault := bytes.HasPrefix(status, []byte("HTTP/1.1 20")), string(status)
	length := -1
	for {
		header, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(header) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(header, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	if !good || length < 0 {
		body, _ := r.Peek(min(max(length, 0), 500))
		return fmt.Errorf("answer %q: %s", fault, body)
	}
	_, err = r.Discard(length)
	return err
}

// clientsText says how many.
func clientsText(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// spread is a number that no other number gives, and that is far from its
// neighbours' (splitmix64): prefixes do not come in the order of the index.
func spread(n int64) uint64 {
	x := uint64(n) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// spreadPrefix appends the prefix of a number.
func spreadPrefix(to []byte, n int64) []byte {
	const digits = "0123456789abcdef"
	to = append(to, 'r')
	for x, i := spread(n), 60; i >= 0; i -= 4 {
		to = append(to, digits[x>>i&15])
	}
	return to
}

// numbered counts from a number of 13 digits, so that all requests have one length.
func numbered() *atomic.Int64 {
	var n atomic.Int64
	n.Store(1e12)
	return &n
}

// posts reserve prefixes that no usage has.
func posts(clients int, numbers *atomic.Int64) load {
	const start, middle, end = `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"`, `","network_id":`, `,"network_name":"net"}`
	head := fmt.Sprintf("POST /api/v1/ddns/usages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(start)+17+len(middle)+13+len(end), start)
	return load{clients: clients, numbers: numbers, request: func(to []byte, n int64) []byte {
		to = append(spreadPrefix(append(to, head...), n), middle...)
		return append(strconv.AppendInt(to, n, 10), end...)
	}}
}

// checks ask whether a prefix is taken, of as many as there are; they take turns
// far apart.
func checks(clients, names int) load {
	return load{clients: clients, request: func(to []byte, n int64) []byte {
		to = append(to, "GET /api/v1/ddns/check-prefix?service_id=svc&prefix=n"...)
		to = strconv.AppendInt(to, first+int64(spread(n)%uint64(names)), 10)
		return append(to, " HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
	}}
}
