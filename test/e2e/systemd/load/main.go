// Load asks a running meshddns and counts what goes wrong. It stands outside of the program,
// as any client does, and hides nothing: no request is tried again.
//
//	load ask HTTP UNIX NAME      requests and queries until SIGTERM, over new and kept connections
//	load crowd HTTP UNIX NAME    the same by sixteen clients of each kind
//	load reserve HTTP FILE       reservations until SIGTERM; the prefixes that were acknowledged go to FILE
//	load verify HTTP FILE LOST   each of FILE is there, and at most LOST others of this program
//
// NAME has a TXT record at 127.0.0.1:53. MESHDDNS_TOKEN is the token of HTTP. It ends with a
// line of figures, and with status 1 when something went wrong.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds each request: longer than any restart may take.
const patience = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 4 && args[0] == "ask":
		return ask(ctx, 1, args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "crowd":
		return ask(ctx, 16, args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "reserve":
		return reserve(ctx, args[1], args[2])
	case len(args) == 4 && args[0] == "verify":
		lost, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return verify(args[1], args[2], lost)
	}
	return errors.New("usage: load ask|crowd HTTP UNIX NAME | reserve HTTP FILE | verify HTTP FILE LOST")
}

// counts is what workers of one kind have seen.
type counts struct {
	what          string
	right, failed int
	first         error
}

func (c *counts) add(err error) {
	if err == nil {
		c.right++
		return
	}
	c.failed++
	if c.first == nil {
		c.first = err
	}
}

// ask has so many clients of each kind, which are counted together.
func ask(ctx context.Context, clients int, address, socket, name string) error {
	kinds := []struct {
		what string
		ask  func() func() error // of one client
	}{
		{"http, new connections", func() func() error { return fresh("tcp", address) }},
		{"http, kept connection", func() func() error { return kept("tcp", address) }},
		{"http, kept connection 2", func() func() error { return kept("tcp", address) }},
		{"unix, new connections", func() func() error { return fresh("unix", socket) }},
		{"unix, kept connection", func() func() error { return kept("unix", socket) }},
		{"dns, udp", func() func() error { return query("udp", name) }},
		{"dns, tcp", func() func() error { return query("tcp", name) }},
	}
	all := make([]counts, len(kinds))
	var alone sync.Mutex
	var asking sync.WaitGroup
	for i, kind := range kinds {
		all[i].what = kind.what
		for range clients {
			once := kind.ask()
			asking.Go(func() {
				for ctx.Err() == nil {
					err := once()
					alone.Lock()
					all[i].add(err)
					alone.Unlock()
				}
			})
		}
	}
	asking.Wait()
	return report(all)
}

func report(all []counts) error {
	var sum counts
	for _, c := range all {
		fmt.Printf("%s: %d right, %d failed", c.what, c.right, c.failed)
		if c.first != nil {
			fmt.Printf(", the first: %v", c.first)
		}
		fmt.Println()
		sum.right, sum.failed = sum.right+c.right, sum.failed+c.failed
		if c.right == 0 {
			sum.failed++
		}
	}
	fmt.Printf("%d right, %d failed\n", sum.right, sum.failed)
	if sum.failed > 0 {
		return errors.New("not every request was answered")
	}
	return nil
}

// fresh asks over a new connection each time.
func fresh(network, address string) func() error {
	return func() error {
		conn, err := dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = call(conn, bufio.NewReader(conn), "GET", "/api/v1/ddns/services", nil)
		return err
	}
}

// kept asks over one connection for as long as the server keeps it.
func kept(network, address string) func() error {
	var conn net.Conn
	var reader *bufio.Reader
	return func() (err error) {
		if conn == nil {
			if conn, err = dial(network, address); err != nil {
				return err
			}
			reader = bufio.NewReader(conn)
		}
		conn.SetDeadline(time.Now().Add(patience))
		more, err := call(conn, reader, "GET", "/api/v1/ddns/services", nil)
		if err != nil || !more {
			conn.Close()
			conn = nil
		}
		return err
	}
}

func dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// call sends a request and wants 200. It tells whether the connection may be used again.
func call(conn net.Conn, reader *bufio.Reader, method, path string, body []byte) (bool, error) {
	request, err := http.NewRequest(method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("MESHDDNS_TOKEN"))
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if err := request.Write(conn); err != nil {
		return false, fmt.Errorf("send: %w", err)
	}
	answer, err := http.ReadResponse(reader, request)
	if err != nil {
		return false, fmt.Errorf("receive: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, fmt.Errorf("receive the body: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return false, fmt.Errorf("%s: %s", answer.Status, text)
	}
	return !answer.Close, nil
}

// query asks for a TXT record, each time from a new port.
func query(network, name string) func() error {
	var message []byte
	message = append(message, 0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		message = append(append(message, byte(len(label))), label...)
	}
	message = append(message, 0, 0, 16, 0, 1)
	return func() error {
		conn, err := dial(network, "127.0.0.1:53")
		if err != nil {
			return err
		}
		defer conn.Close()
		sent, length := message, 0
		if network == "tcp" {
			sent = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
			length = 2
		}
		if _, err := conn.Write(sent); err != nil {
			return err
		}
		answer := make([]byte, 4096)
		n, err := io.ReadAtLeast(conn, answer, length+12)
		if err != nil {
			return err
		}
		if answer = answer[length:n]; answer[3]&15 != 0 || answer[7] == 0 {
			return fmt.Errorf("rcode %d with %d records", answer[3]&15, answer[7])
		}
		return nil
	}
}

// prefix begins the prefixes that reserve asks for.
const prefix = "kill-"

// reserve has eight workers; each notes what was acknowledged before it asks for more.
func reserve(ctx context.Context, address, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var alone sync.Mutex
	noted, broken := 0, 0
	var asking sync.WaitGroup
	for worker := range 8 {
		asking.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%s%d-%d-%d", prefix, os.Getpid(), worker, i)
				err := reserveOne(address, name)
				alone.Lock()
				if err == nil {
					noted++
					fmt.Fprintln(file, name)
				} else {
					broken++
				}
				alone.Unlock()
			}
		})
	}
	asking.Wait()
	fmt.Printf("%d acknowledged, %d not answered\n", noted, broken)
	if noted == 0 {
		return errors.New("no reservation was acknowledged")
	}
	return file.Close()
}

func reserveOne(address, name string) error {
	conn, err := dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	body, err := json.Marshal(map[string]any{
		"service_id": "office", "prefix_mode": "custom", "custom_prefix": name, "network_id": 1, "network_name": "Kill",
	})
	if err != nil {
		return err
	}
	_, err = call(conn, bufio.NewReader(conn), "POST", "/api/v1/ddns/usages", body)
	return err
}

// verify reads all usages and compares.
func verify(address, path string, lost int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	noted := map[string]bool{}
	for _, name := range strings.Fields(string(text)) {
		noted[name] = true
	}
	stored, err := usages(address)
	if err != nil {
		return err
	}
	missing, unknown := 0, 0
	for name := range noted {
		if !stored[name] {
			missing++
		}
	}
	for name := range stored {
		if strings.HasPrefix(name, prefix) && !noted[name] {
			unknown++
		}
	}
	fmt.Printf("%d acknowledged, %d of them missing, %d more were stored\n", len(noted), missing, unknown)
	if len(noted) == 0 || missing > 0 || unknown > lost {
		return errors.New("what is stored is not what was acknowledged")
	}
	return nil
}

// usages gives the prefixes that are reserved.
func usages(address string) (map[string]bool, error) {
	request, err := http.NewRequest("GET", "http://"+address+"/api/v1/ddns/usages/available?service_id=office", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("MESHDDNS_TOKEN"))
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var list struct {
		Data []struct {
			Prefix string `json:"record_prefix"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, err
	}
	stored := map[string]bool{}
	for _, u := range list.Data {
		stored[u.Prefix] = true
	}
	return stored, nil
}
