package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// knotSpeed compares the built-in server with Knot when both have the same zone.
func knotSpeed(t *testing.T, b *table) {
	support.Need(t, "dnsperf", "knotd")
	s := speedScale()
	for _, names := range []int{s.names, s.most} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			db := published(t, builtin, names)
			if names == s.most {
				startOfZone(t, b, db, names)
			}
			answersBeside(t, b, db, names)
		})
	}
}

func answersBeside(t *testing.T, b *table, db string, names int) {
	s := speedScale()
	p := start(t, db)
	p.process.rest()
	knot := startKnot(t, p, names)
	for _, kind := range []struct {
		name  string
		rcode dns.Rcode
		of    func(n int64) string
	}{{"hits", dns.RcodeSuccess, hits(names)}, {"NXDOMAIN", dns.RcodeNXDomain, misses}} {
		file := questions(t, p.dns, kind.rcode, s.questions, kind.of)
		if got, _ := ask(t, knot.server, kind.of(1)); got != kind.rcode {
			t.Fatalf("%s at Knot: %v", kind.of(1), got)
		}
		var ours, theirs, our, their []float64
		for i := range s.rounds + 1 {
			each, rate := p.answering().cost(t, file, s.turn)
			ours, our = append(ours, rate), append(our, each)
			each, rate = knot.cost(t, file, s.turn)
			theirs, their = append(theirs, rate), append(their, each)
			if i == 0 {
				ours, theirs, our, their = nil, nil, nil, nil
			}
		}
		b.compare(t, contest{
			row: "DNS answers/s / Knot, " + kind.name, measured: fmt.Sprintf("%d names, dnsperf %s", names, strings.Join(asMany, " ")),
			bound: least(0.6, 1), show: perSecond,
		}, ours, theirs)
		b.add(t, line{
			row: "processor time a DNS query, " + kind.name, measured: fmt.Sprintf("%d names", names),
			figure: spanned(our, decimals) + " us; Knot " + spanned(their, decimals) + " us",
		})
	}
	b.state(t, absolute{
		row: "memory of a zone", measured: fmt.Sprintf("%d names, VmHWM after all queries; Knot %d MB", names, knot.process.peak()),
		bound: bound{must: 250, aim: 150, most: true}, show: decimals, unit: " MB", counts: true,
	}, float64(p.process.peak()))
}

// startOfZone measures how long a start takes until DNS answers.
func startOfZone(t *testing.T, b *table, db string, names int) {
	var took []float64
	for range 5 {
		dns := support.FreeAddress(t)
		began := time.Now()
		p := launch(t, db+".log", nil, append([]string{built(t)}, arguments(db, "127.0.0.1:0", dns)...)...)
		awaitAnswer(t, dns, nameOf(first+names-1))
		took = append(took, time.Since(began).Seconds())
		p.stop()
	}
	b.state(t, absolute{
		row: "start until DNS answers", measured: fmt.Sprintf("%d names, the last of them, 5 starts", names), bound: most(2, 1), show: decimals, unit: " s",
	}, took...)
}

// awaitAnswer asks until a server has an answer: at once again while it has none.
func awaitAnswer(t *testing.T, server, name string) {
	t.Helper()
	awaitValues(t, server, name, func(values []string) bool { return len(values) > 0 })
}

// awaitValues asks a server until the values at a name are right, and tells how long that took.
func awaitValues(t *testing.T, server, name string, right func(values []string) bool) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 3*limit {
		if answer, err := exchange(server, name); err == nil {
			var values []string
			for _, rr := range answer.Answers {
				values = append(values, string(rr.Data))
			}
			if right(values) {
				return time.Since(began)
			}
		}
		<-time.After(200 * time.Microsecond)
	}
	t.Fatalf("%s does not answer for %s", server, name)
	return 0
}

// startKnot runs Knot, as it is without settings, with the zone that it transfers from a program.
func startKnot(t *testing.T, p *program, names int) answering {
	t.Helper()
	folder, err := os.MkdirTemp("", "knot") // not t.TempDir: a socket's path in it must stay under 108 octets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	server := support.FreeAddress(t)
	configuration := fmt.Sprintf(`
server:
    rundir: %[1]s
    listen: %[2]s
database:
    storage: %[1]s
remote:
  - id: primary
    address: %[4]s
acl:
  - id: here
    address: 127.0.0.0/8
    action: [notify, transfer]
zone:
  - domain: %[3]s
    storage: %[1]s
    master: primary
    acl: here
    zonefile-sync: -1
    zonefile-load: none
    journal-content: none
log:
  - target: stderr
    any: info
`, folder, strings.Replace(server, ":", "@", 1), zone, strings.Replace(p.dns, ":", "@", 1))
	p.allowHere(server)
	if err := os.WriteFile(filepath.Join(folder, "knot.conf"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	process := launch(t, filepath.Join(folder, "log"), nil, "knotd", "-c", filepath.Join(folder, "knot.conf"))
	awaitAnswer(t, server, nameOf(first+names-1))
	return answering{server, process}
}

// floodShare measures how many of a good client's questions are answered while
// another client asks for random names, and the same of Knot.
func floodShare(t *testing.T, b *table) {
	support.Need(t, "dnsperf", "knotd")
	s := speedScale()
	p := start(t, published(t, builtin, s.names))
	knot := startKnot(t, p, s.names)
	so := 2 * s.turn
	bad := questions(t, p.dns, dns.RcodeNXDomain, 3*s.questions, misses)
	good := questions(t, p.dns, dns.RcodeSuccess, 10_000, hits(s.names))
	share := func(server string) float64 {
		var flood sync.WaitGroup
		flood.Go(func() { dnsperf(t, server, bad, so, "-Q", "40000", "-q", "60000", "-c", "8", "-t", "1") })
		q := dnsperf(t, server, good, so, "-Q", "1000", "-q", "2000", "-a", "127.9.9.9", "-t", "1")
		flood.Wait()
		return math.Round(100*float64(q.completed)/float64(q.sent)) / 100
	}
	var ours, theirs []float64
	for range 5 {
		ours = append(ours, share(p.dns))
		theirs = append(theirs, share(knot.server))
	}
	b.compare(t, contest{
		row: "good client beside a flood: answered / Knot's share", measured: fmt.Sprintf("40000 random names/s, 1000 good queries/s from another address, %v, to the hundredth", so),
		bound: least(1, 0), show: decimals,
	}, ours, theirs)
}
