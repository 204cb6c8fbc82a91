package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/support"
)

// atOnce measures the time from the answer to a change until the first DNS answer that has it, one
// change after the other, and the same of acme-dns.
func atOnce(t *testing.T, b *table) {
	t.Run("builtin", func(t *testing.T) {
		p := start(t, published(t, builtin.automatic(), size().few))
		p.process.rest()
		p.seen(t, b, p.dns)
	})
	t.Run("Knot", func(t *testing.T) {
		r := atKnot(t)
		r.account.Mode = "auto"
		p := start(t, reserved(t, r.account, 1))
		p.process.rest()
		p.seen(t, b, r.server)
	})
	t.Run("acme-dns", func(t *testing.T) { acmeSeen(t, b) })
}

// seen reserves names, changes them and releases them, one after the other, and adds the lines of how
// long each takes to be answered.
func (p *program) seen(t *testing.T, b *table, server string) {
	const endpoint = "tcp://192.0.2.1:11010"
	var reserved, changed, released []time.Duration
	for n := range 10 * size().changes {
		name := nameOf(first + size().most + n)
		id := p.reserve(first + size().most + n)
		reserved = append(reserved, awaitValues(t, server, name, func(values []string) bool { return len(values) > 0 }))
		p.call("PATCH", "/usages/"+id, `{"txt_endpoints":["`+endpoint+`"]}`)
		changed = append(changed, awaitValues(t, server, name, func(values []string) bool { return len(values) == 1 && strings.Contains(values[0], endpoint) }))
		p.call("DELETE", "/usages/"+id, "")
		released = append(released, awaitValues(t, server, name, func(values []string) bool { return len(values) == 0 }))
	}
	addSeen(t, b, "POST usages to the first DNS answer", reserved)
	addSeen(t, b, "PATCH of a usage to the first DNS answer", changed)
	addSeen(t, b, "DELETE of a usage to the first DNS answer", released)
}

func addSeen(t *testing.T, b *table, row string, took []time.Duration) {
	sorted := slices.Sorted(slices.Values(took))
	b.add(t, line{
		row: row + ", " + nameOfTest(t), measured: fmt.Sprintf("%d changes, one after the other; p99 %s", len(took), round(sorted[len(sorted)*99/100])),
		figure: round(median(took)), must: "100 ms", ok: median(took) <= 100*time.Millisecond,
	})
}

// acmeDNSModule is the version of acme-dns that is compared with.
const acmeDNSModule = "github.com/joohoi/acme-dns@v1.0.0"

// acmeSeen measures acme-dns, whose clients change the value of a name that they have.
func acmeSeen(t *testing.T, b *table) {
	path := *acmeDNSPath
	if path == "" {
		folder := t.TempDir()
		build := exec.Command("go", "install", acmeDNSModule)
		build.Dir, build.Env = folder, append(build.Environ(), "GOBIN="+folder, "GOFLAGS=-mod=mod")
		if said, err := build.CombinedOutput(); err != nil {
			t.Skipf("acme-dns is not built: %v\n%s", err, said)
		}
		path = filepath.Join(folder, "acme-dns")
	}
	listen, dns := support.FreeAddress(t), support.FreeAddress(t)
	startedAt(t, "http://"+listen+"/health", append([]string{path}, acmeDNS(t.TempDir(), listen, dns)...)...)
	var account struct{ Username, Password, Subdomain, Fulldomain string }
	response, err := http.Post("http://"+listen+"/register", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&account); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for n := range 10 * size().changes {
		value := fmt.Sprintf("%043d", n)
		request, err := http.NewRequest("POST", "http://"+listen+"/update", strings.NewReader(fmt.Sprintf(`{"subdomain":%q,"txt":%q}`, account.Subdomain, value)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Api-User", account.Username)
		request.Header.Set("X-Api-Key", account.Password)
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%v %+v", err, response)
		}
		response.Body.Close()
		took = append(took, awaitValues(t, dns, account.Fulldomain, func(values []string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, value) })
		}))
	}
	addSeen(t, b, "POST update to the first DNS answer", took)
}

// reserveBeside measures reservations while a pass at full speed goes through all names.
func reserveBeside(t *testing.T, b *table) {
	s := size()
	p := start(t, published(t, builtin, s.many))
	p.process.rest()
	through := make(chan struct{})
	var pass sync.WaitGroup
	pass.Go(func() { defer close(through); p.sync(5) })
	var took []time.Duration
	for n := 0; ; n++ {
		select {
		case <-through:
			pass.Wait()
			b.add(t, line{
				row: "reservation beside a pass", measured: fmt.Sprintf("the slowest of %d, %d unchanged names, builtin; median %s", len(took), s.many, round(median(took))),
				figure: round(slowest(took)), must: "50 ms", ok: slowest(took) <= 50*time.Millisecond,
			})
			return
		default:
		}
		began := time.Now()
		p.reserve(first + s.most + n)
		took = append(took, time.Since(began))
	}
}

// commitsPerReservation is how many transactions a reservation among many may take until it stands:
// as many as reservations and a pass over them would take.
const commitsPerReservation = 0.06

// burst measures reservations that arrive together in mode auto, until all of them stand.
func burst(t *testing.T, b *table) {
	for _, at := range bulkProviders {
		t.Run(at.name, func(t *testing.T) { burstAt(t, b, at.remote(t)) })
	}
}

func burstAt(t *testing.T, b *table, r remote) {
	s := size()
	r.account.Mode = "auto"
	p := start(t, reserved(t, r.account, 1))
	p.process.rest()
	commits, calls, began := p.commits(), r.asked(), time.Now()
	posts(64, numbered()).times(t, p.http, s.bulk)
	answered := time.Since(began)
	p.eventually("all of them stand", func() bool {
		answer, _ := p.call("GET", "/usages/available?state=pending&limit=1", "")
		return strings.Contains(answer, `"data":[]`)
	})
	took, each := time.Since(began), float64(p.commits()-commits)/float64(s.bulk)
	b.add(t, line{
		row:      "commits per reservation in auto, " + nameOfTest(t),
		measured: fmt.Sprintf("%d reservations of 64 clients in %s, all stand after %s; %d calls", s.bulk, round(answered), round(took), r.asked()-calls),
		figure:   fmt.Sprintf("%.4f", each), must: fmt.Sprint(commitsPerReservation), ok: each <= commitsPerReservation,
	})
}
