package fuzz

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// exchangeTime bounds a request and its answer: a synchronisation may take a minute.
const exchangeTime = 90 * time.Second

// client sends requests over one connection at a time.
type client struct {
	address string
	conn    net.Conn
	read    *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// do makes an exchange. A connection that is closed before the request was read is
// opened anew, once.
func (c *client) do(r request) (a answer, err error) {
	for range 2 {
		fresh := c.conn == nil
		if a, err = c.try(r); err == nil || fresh || errors.Is(err, os.ErrDeadlineExceeded) {
			return a, err
		}
	}
	return a, err
}

func (c *client) try(r request) (a answer, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.address, exchangeTime); err != nil {
			c.conn = nil
			return a, err
		}
		c.read = bufio.NewReader(c.conn)
	}
	c.conn.SetDeadline(time.Now().Add(exchangeTime))
	_, fault := io.WriteString(c.conn, r.wire()) // the answer may come before all is sent
	response, err := c.response(r.method)
	if err != nil {
		c.close()
		return a, errors.Join(fault, err)
	}
	a = answer{status: response.StatusCode, header: response.Header}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		c.close()
		return a, fmt.Errorf("status %d, and a broken body: %w", a.status, err)
	}
	if response.Close || fault != nil || r.wrong {
		c.close()
	}
	return a, nil
}

func (c *client) response(method string) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(c.read, &http.Request{Method: method})
		if err != nil || response.StatusCode >= 200 {
			return response, err
		}
	}
}

// learn keeps what later requests can be about.
func (g *generator) learn(r request, a answer) {
	path, _, _ := strings.Cut(r.target, "?")
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/ddns/"), "/")
	var made struct{ Data struct{ ID string } }
	if r.method == "POST" && a.status == http.StatusOK {
		json.Unmarshal(a.body, &made) // an answer without an id leaves it empty
	}
	id, gone := made.Data.ID, r.method == "DELETE" && (a.status == http.StatusOK || a.status == http.StatusNotFound)
	switch {
	case parts[0] == "usages" && len(parts) == 3 && parts[2] == "leases" && id != "":
		g.leases = append(g.leases, lease{parts[1], id})
	case parts[0] == "usages" && len(parts) == 4 && gone:
		g.leases = without(g.leases, lease{parts[1], parts[3]})
	case parts[0] == "usages" && len(parts) == 1 && id != "":
		g.usages = append(g.usages, id)
	case parts[0] == "usages" && len(parts) == 2 && gone:
		g.usages = without(g.usages, parts[1])
		g.leases = slices.DeleteFunc(g.leases, func(l lease) bool { return l.usage == parts[1] })
	case parts[0] == "services" && len(parts) == 1 && id != "" && !strings.HasPrefix(id, "svc-"):
		g.services = append(g.services, id)
	case parts[0] == "services" && len(parts) == 2 && gone:
		g.services = without(g.services, parts[1])
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(each T) bool { return each == one })
}
