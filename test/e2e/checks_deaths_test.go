package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

const (
	deathsARound = 12               // each has a link of its own
	dyingTime    = 12 * time.Second // the deaths of a round come within it
	deathsWithin = 3 * time.Minute  // a round; how long a death takes does not decide the test

	// One judgement at a time: a death may wait for the one before it, of an endpoint that hangs.
	checkedBeside = checkedWithin + 3*3*time.Second
)

// One of three endpoints of a name dies at a random moment: its process is killed, or stopped so that only the kernel
// accepts connections, or its link is cut. It leaves DNS, and no other endpoint does. The same endpoint is the only one of
// a second name, where it stays. Each death is of another name, because checks change a name at most once a minute.
// MESHDDNS_DEATHS says how many deaths of each kind there are.
func TestDeaths(t *testing.T) {
	long(t, "MESHDDNS_DEATHS")
	support.Need(t, "nsenter")
	if !checksRun(t) {
		return
	}
	kinds := slices.Repeat([]string{"killed", "stopped", "cut off"}, number(t, "MESHDDNS_DEATHS", 0))
	rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	far := newFar(t)
	var all []*mortal
	for round := range slices.Chunk(kinds, deathsARound) {
		t.Run("round", func(t *testing.T) { all = append(all, far.round(t, round)...) })
		if t.Failed() {
			return
		}
	}
	for _, kind := range []string{"killed", "stopped", "cut off", ""} {
		logDeaths(t, kind, all)
	}
}

// logDeaths logs how long the deaths of a kind took, "" for all kinds.
func logDeaths(t *testing.T, kind string, all []*mortal) {
	var took []time.Duration
	late := 0
	for _, m := range all {
		if d := m.left.Sub(m.died); kind == "" || m.kind == kind {
			took = append(took, d)
			if d > checkedWithin {
				late++
			}
		}
	}
	if len(took) == 0 {
		return
	}
	if kind == "" {
		kind = "in all"
	}
	slices.Sort(took)
	t.Logf("%s: %d deaths, out of DNS after %.1f s in the median, p99 %.1f s, at most %.1f s; %d of them after more than %.0f s, the bound for one alone (%.0f s beside others that hang)", kind, len(took),
		took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds(), took[len(took)-1].Seconds(), late, checkedWithin.Seconds(), checkedBeside.Seconds())
}

// newFar makes a network namespace with a link of its own for each endpoint that dies, and one for those that live.
func newFar(t *testing.T) *beyond {
	t.Helper()
	f := newBeyond(t)
	f.ip(t, "link set lo up")
	for i := range deathsARound + 1 {
		ip(t, fmt.Sprintf("link add near%d type veth peer name far%[1]d netns %d", i, f.thread))
		ip(t, fmt.Sprintf("address add 10.77.%d.1/24 dev near%[1]d", i))
		ip(t, fmt.Sprintf("link set near%d up", i))
		f.ip(t, fmt.Sprintf("address add 10.77.%d.2/24 dev far%[1]d", i))
		f.ip(t, fmt.Sprintf("link set far%d up", i))
	}
	return f
}

// start starts a process there that answers HTTP at addresses.
func (f *beyond) start(t *testing.T, addresses ...string) *program {
	t.Helper()
	words := []string{"nsenter", fmt.Sprintf("--net=/proc/%d/task/%d/ns/net", os.Getpid(), f.thread), binary(t)}
	return startWith(t, nil, words, checksArgs(filepath.Join(t.TempDir(), "far.db"), "-node-listen", strings.Join(addresses, ","))...)
}

// mortal is an endpoint that dies.
type mortal struct {
	process            *program
	kind               string // of death
	endpoint           string
	name, id           string        // of the usage that has others too
	whole, living      string        // what it publishes before and after the death
	alone, aloneID     string        // of the usage that has only this endpoint
	link               string        // there
	at                 time.Duration // of the death, in the round
	died, left, failed time.Time
}

// round starts the program with two names for each death, and lets an endpoint of each name die.
func (f *beyond) round(t *testing.T, kinds []string) (all []*mortal) {
	f.start(t, "10.77.0.2:7001", "10.77.0.2:7002")
	others := []string{"http://10.77.0.2:7001", "http://10.77.0.2:7002"}
	p := startChecks(t, filepath.Join(t.TempDir(), "meshddns.db"), "-check-control", f.serve(t, "10.77.0.2:7003").address)
	for i, kind := range kinds {
		m := &mortal{kind: kind, name: fmt.Sprint("n", i), alone: fmt.Sprint("alone", i), link: fmt.Sprint("far", i+1), at: rand.N(dyingTime)}
		f.ip(t, "link set "+m.link+" up")
		address := fmt.Sprintf("10.77.%d.2:7001", i+1)
		m.process, m.endpoint = f.start(t, address), "http://"+address
		whole := slices.Insert(slices.Clone(others), rand.IntN(len(others)+1), m.endpoint)
		m.whole, m.living = strings.Join(whole, " "), strings.Join(others, " ")
		m.id, m.aloneID = p.addChecked(m.name, httpCheck, whole...), p.addChecked(m.alone, httpCheck, m.endpoint)
		all = append(all, m)
	}
	support.Eventually(t, limit, "all endpoints are published", func() bool {
		published := p.allPublished(all)
		return !slices.ContainsFunc(all, func(m *mortal) bool { return m.see(time.Now(), published) != nil })
	})
	support.Eventually(t, limit, "all endpoints are alive", func() bool {
		return !slices.ContainsFunc(all, func(m *mortal) bool { return !p.alive(m.id, 3) || !p.alive(m.aloneID, 1) })
	})
	f.die(p, all)
	for _, m := range all {
		dead := p.endpointEvents(m.id)
		if len(dead) != 1 || dead[0].Kind != "endpoint.dead" || dead[0].Detail.After.Endpoint != m.endpoint {
			t.Fatalf("%s: events %+v", m.name, dead)
		}
		t.Logf("%s was %s: out of DNS after %.1f s; %s", m.endpoint, m.kind, m.left.Sub(m.died).Seconds(), dead[0].Detail.Error)
		if told := p.endpointEvents(m.aloneID); len(told) > 0 {
			t.Errorf("%s: events %+v", m.alone, told)
		}
	}
	return all
}

// die lets the endpoints die, each in its time, and waits until all have left DNS and have failed as often where they stay.
func (f *beyond) die(p *program, all []*mortal) {
	p.t.Helper()
	began := time.Now()
	over := support.Within(deathsWithin, func() bool {
		for _, m := range all {
			if m.died.IsZero() && time.Since(began) >= m.at {
				m.died = time.Now()
				f.end(p.t, m)
			}
		}
		published, now := p.allPublished(all), time.Now()
		for _, m := range all {
			if err := m.see(now, published); err != nil {
				p.t.Fatal(err)
			}
			if m.failed.IsZero() && !m.left.IsZero() && len(p.failing(m.aloneID)) > 0 {
				m.failed = now
			}
		}
		return !slices.ContainsFunc(all, func(m *mortal) bool { return m.failed.IsZero() || now.Sub(m.failed) < checkCount*checkEvery*11/10 })
	})
	if !over {
		for _, m := range all {
			if m.failed.IsZero() {
				p.t.Errorf("%s was %s: it has left DNS: %t; it has failed where it is the only endpoint: false", m.endpoint, m.kind, !m.left.IsZero())
			}
		}
		p.t.FailNow()
	}
}

// end brings a death about.
func (f *beyond) end(t *testing.T, m *mortal) {
	t.Helper()
	var err error
	switch m.kind {
	case "killed":
		err = m.process.cmd.Process.Kill()
	case "stopped":
		err = m.process.cmd.Process.Signal(syscall.SIGSTOP)
	case "cut off":
		f.ip(t, "link set "+m.link+" down")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// see compares what is published with what may be, and notes when the dead endpoint has left.
func (m *mortal) see(now time.Time, published map[string]string) error {
	got := published[m.name]
	switch {
	case published[m.alone] != m.endpoint:
		return fmt.Errorf("%s: %q is published, want its only endpoint %s", m.alone, published[m.alone], m.endpoint)
	case m.died.IsZero() && got != m.whole:
		return fmt.Errorf("%s: %q is published before a death, want %q", m.name, got, m.whole)
	case got == m.living && m.left.IsZero():
		m.left = now
	case got != m.living && !m.left.IsZero():
		return fmt.Errorf("%s: %q is published, after %s had left", m.name, got, m.endpoint)
	case got != m.living && got != m.whole:
		return fmt.Errorf("%s: %q is published, want %q, with %s until it leaves", m.name, got, m.living, m.endpoint)
	}
	return nil
}

// allPublished asks one dig for the endpoints of all names. Over UDP one of so many questions would come back to dig itself:
// the kernel lets it share the port of the server, because both ask for SO_REUSEPORT.
func (p *program) allPublished(all []*mortal) map[string]string {
	p.t.Helper()
	args := []string{"+tcp", "+keepopen", "+noall", "+answer"}
	for _, m := range all {
		args = append(args, "_mesh."+m.name+".mesh.example.com", "TXT", "_mesh."+m.alone+".mesh.example.com", "TXT")
	}
	published := map[string]string{}
	for line := range strings.Lines(p.dig(args...)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "_mesh."), ".mesh.example.com.")
		published[name] = endpointsOf(value)
	}
	return published
}

// The comparison takes a death in its time, and finds each fault.
func TestDeathsFindsFaults(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		what       string
		died, left time.Time
		name, only string // what is published
		want       string // in the error; "": sound
	}{
		{"nothing has died", time.Time{}, time.Time{}, "a b c", "b", ""},
		{"it is dead and still there", at, time.Time{}, "a b c", "b", ""},
		{"it has left", at, time.Time{}, "a c", "b", ""},
		{"it stays away", at, at, "a c", "b", ""},
		{"it leaves alive", time.Time{}, time.Time{}, "a c", "b", "before a death"},
		{"another leaves before", time.Time{}, time.Time{}, "a b", "b", "before a death"},
		{"another leaves in its place", at, time.Time{}, "a b", "b", "until it leaves"},
		{"another leaves with it", at, time.Time{}, "a", "b", "until it leaves"},
		{"another leaves later", at, at, "c", "b", "had left"},
		{"it returns dead", at, at, "a b c", "b", "had left"},
		{"the name vanishes", at, time.Time{}, "", "b", "until it leaves"},
		{"the only endpoint vanishes", at, time.Time{}, "a b c", "", "only endpoint"},
	} {
		m := &mortal{endpoint: "b", name: "n", alone: "o", whole: "a b c", living: "a c", died: c.died, left: c.left}
		err := m.see(at, map[string]string{"n": c.name, "o": c.only})
		if err == nil {
			err = errors.New("")
		}
		if (c.want == "") != (err.Error() == "") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, want %q", c.what, err, c.want)
		}
		if left := c.what == "it has left"; left && m.left != at {
			t.Errorf("%s: that is not noted", c.what)
		}
	}
}
