package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"meshddns/internal/dns"
)

// queried is what dnsperf has counted.
type queried struct {
	sent, completed int
	perSecond       float64
}

// dnsperf asks a server what is in a file, over and over.
func dnsperf(t *testing.T, server, file string, so time.Duration, args ...string) queried {
	t.Helper()
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		t.Fatal(err)
	}
	command := slices.Concat([]string{"-s", host, "-p", port, "-d", file, "-l", strconv.FormatFloat(so.Seconds(), 'f', -1, 64), "-W"}, args)
	out, err := exec.Command("dnsperf", command...).CombinedOutput()
	if err != nil {
		t.Fatalf("dnsperf: %v\n%s", err, out)
	}
	number := func(what string) float64 {
		found := regexp.MustCompile(what + `:\s+([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("dnsperf says no %q:\n%s", what, out)
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return queried{sent: int(number("Queries sent")), completed: int(number("Queries completed")), perSecond: number("Queries per second")}
}

// asMany are the clients of a server that is to answer as much as it can.
var asMany = []string{"-c", "16", "-q", "200", "-t", "1"}

// questions writes a file of TXT queries in no order, and asks the first of them:
// what is measured must be what is meant.
func questions(t *testing.T, server string, rcode dns.Rcode, many int, name func(n int64) string) (file string) {
	t.Helper()
	if got, _ := ask(t, server, name(1)); got != rcode {
		t.Fatalf("%s at %s: %v, want %v", name(1), server, got, rcode)
	}
	file = filepath.Join(t.TempDir(), "questions")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	buffered := bufio.NewWriter(out)
	for n := range int64(many) {
		fmt.Fprintf(buffered, "%s TXT\n", name(n))
	}
	if err := buffered.Flush(); err != nil {
		t.Fatal(err)
	}
	return file
}

// hits are names that are there, misses names that look like them and are not.
func hits(names int) func(n int64) string {
	return func(n int64) string { return nameOf(first + int(spread(n)%uint64(names))) }
}

func misses(n int64) string { return "_mesh." + string(spreadPrefix(nil, n)) + "." + zone }

// ask asks a server for the TXT records of a name.
func ask(t testing.TB, server, name string) (dns.Rcode, []dns.RR) {
	t.Helper()
	answer, err := exchange(server, name)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Rcode, answer.Answers
}

func exchange(server, name string) (dns.Message, error) {
	owner, err := dns.ParseName(name)
	if err != nil {
		return dns.Message{}, err
	}
	query := dns.Message{Questions: []dns.Question{{Name: owner, Type: dns.TypeTXT, Class: dns.ClassIN}}}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	data, err := dns.Exchange(ctx, server, query.Pack())
	if err != nil {
		return dns.Message{}, err
	}
	return dns.ParseMessage(data)
}
