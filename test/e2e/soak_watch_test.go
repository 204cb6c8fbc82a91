package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/test/e2e/soak"
	"meshddns/test/support"
)

// watch takes a sample every second.
func (s *soaked) watch() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-ticker.C:
		}
		sample := s.sample()
		s.mu.Lock()
		s.result.Samples = append(s.result.Samples, sample)
		s.mu.Unlock()
	}
}

func (s *soaked) sample() soak.Sample {
	p := s.p.Load()
	sample := soak.Sample{At: time.Since(s.began), Life: int(s.life.Load()), Calm: s.calm.Load(), Requests: s.requests.Load(), Log: size(s.db + "-wal"), Database: size(s.db)}
	s.mu.Lock()
	times := s.times
	s.times = [soak.Classes][]time.Duration{}
	s.mu.Unlock()
	for class, each := range times {
		sample.Latency[class] = soak.LatencyOf(each)
	}
	if sample.Life == 0 {
		return sample
	}
	h := footprintOf(p.cmd.Process.Pid)
	sample.Resident, sample.Private, sample.Files, sample.Threads = h.resident, h.private, h.files, h.threads
	if a, err := p.try("GET", "/metrics", ""); err == nil && a.status == 200 {
		sample.States = map[string]int{}
		for _, m := range stateFigure.FindAllStringSubmatch(a.body, -1) {
			sample.States[m[1]], _ = strconv.Atoi(m[2])
		}
	}
	return sample
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// footprint is what a process has, in octets.
type footprint struct {
	resident, private int64
	files, threads    int
}

func footprintOf(pid int) (h footprint) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	h.files = len(entries)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch n, _ := strconv.ParseInt(f[1], 10, 64); f[0] {
		case "VmRSS:":
			h.resident = n << 10
		case "RssAnon:":
			h.private = n << 10
		case "Threads:":
			h.threads = int(n)
		}
	}
	return h
}

// askDNS asks the built-in server over UDP and TCP, and the provider's: what is never
// released is always there, what was withdrawn is not, and nothing is another's.
func (s *soaked) askDNS() {
	chance := rand.New(rand.NewPCG(3, 3))
	ticker := time.NewTicker(dnsPace)
	defer ticker.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-ticker.C:
		}
		s.rest.RLock()
		s.askOne(chance)
		s.rest.RUnlock()
	}
}

func (s *soaked) askOne(chance *rand.Rand) {
	c := s.clients[chance.IntN(len(s.clients)-1)]
	if c.zone == hookZone {
		return
	}
	network, server := []string{"udp", "tcp"}[chance.IntN(2)], s.p.Load().dns
	if c.zone == knotZone {
		server = s.server.Addr
	}
	name, want, always := c.question(chance, c.zone == ownZone)
	if name == "" {
		return
	}
	first := s.season()
	began := time.Now()
	values, err := lookUp(network, server, name)
	took := time.Since(began)
	down := s.weatherSince(first).down && c.zone == ownZone
	status := map[bool]string{true: "no such name", false: "a value"}[len(values) == 0]
	if err != nil {
		status = "no answer"
	}
	s.requests.Add(1)
	s.mu.Lock()
	s.tally[[2]string{"DNS over " + network + map[bool]string{true: ", at Knot"}[c.zone == knotZone], status}]++
	if c.zone == ownZone && err == nil {
		s.times[soak.DNS] = append(s.times[soak.DNS], took)
	}
	s.mu.Unlock()
	switch {
	case err != nil && !down:
		s.add(&s.result.Unexpected, "%s at %s over %s: %v", name, server, network, err)
	case err == nil && always && len(values) == 0, len(values) > 1, len(values) == 1 && !strings.HasPrefix(values[0], want):
		s.add(&s.result.Unexpected, "%s at %s over %s is %q, want %q, always %t", name, server, network, values, want, always)
	}
}

// question gives a name, what its value begins with, and whether it always has one. The
// value of a name that has none begins with what no value does.
func (c *soakClient) question(chance *rand.Rand, own bool) (name, want string, always bool) {
	const nothing = "nothing"
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := chance.IntN(10); {
	case n < 4 && len(c.anchors) > 0:
		prefix := c.anchors[chance.IntN(len(c.anchors))]
		network, _, _ := strings.Cut(c.w.facts["usage "+prefix], " ")
		return c.names[prefix], "v=mesh1 n=" + network + " ", own && c.seen[prefix]
	case n < 7 && len(c.w.ids) > 0:
		all := slices.Sorted(maps.Keys(c.w.ids))
		prefix := all[chance.IntN(len(all))]
		network, _, _ := strings.Cut(c.w.facts["usage "+prefix], " ")
		return c.names[prefix], "v=mesh1 n=" + network + " ", false
	case n < 9 && len(c.gone) > 0:
		return c.gone[chance.IntN(len(c.gone))], nothing, false
	}
	return fmt.Sprintf("_mesh.never-%d.%s.", c.w.made, c.domain), nothing, false
}

// lookUp gives the TXT values of a name at a server, none where there is no such name.
func lookUp(network, server, name string) ([]string, error) {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), support.Slowest*limit)
	defer cancel()
	values, err := resolver.LookupTXT(ctx, name)
	if fault := (*net.DNSError)(nil); errors.As(err, &fault) && fault.IsNotFound {
		return nil, nil
	}
	return values, err
}

// takeBackups takes one after the other where that is the phase, and else one now and then.
func (s *soaked) takeBackups() {
	ticker := time.NewTicker(soakPace)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.over:
			return
		case <-ticker.C:
		}
		if s.backups.Load() || time.Since(last) > backupPace {
			s.rest.RLock()
			s.takeBackup()
			s.rest.RUnlock()
			last = time.Now()
		}
	}
}

// takeBackup looks whether a copy has all that was acknowledged before it began, but for
// what a client has meanwhile asked to change.
func (s *soaked) takeBackup() {
	known := map[string]string{}
	for _, c := range s.clients {
		c.mu.Lock()
		maps.Copy(known, c.w.facts)
		c.touched = map[string]bool{c.w.doubt.about: true}
		c.mu.Unlock()
	}
	a, how := s.ask(&soakRequest{kind: "backup", method: "GET", path: backupPath, class: soak.Slow, expect: says("SQLite format 3")})
	touched := map[string]bool{}
	for _, c := range s.clients {
		c.mu.Lock()
		maps.Copy(touched, c.touched)
		c.touched = nil
		c.mu.Unlock()
	}
	if how != done {
		s.result.Cut++
		return
	}
	for _, wrong := range s.wrongInBackup(a.body, known, touched) {
		s.add(&s.result.Copies, "the backup: %s", wrong)
	}
	s.result.Backups++
}

// wrongInBackup says what is wrong with a copy: it is damaged, or it differs from what was
// known before it began in more than what was touched meanwhile. It does not end the test,
// because it runs beside it and holds a lock.
func (s *soaked) wrongInBackup(content string, known map[string]string, touched map[string]bool) (wrong []string) {
	path := filepath.Join(s.folder, "backup.db")
	defer os.Remove(path)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return []string{err.Error()}
	}
	db := support.OpenSQLite(s.t, path, "mode=ro&immutable=1")
	defer db.Close()
	if wrong = unsound(s.t, db); len(wrong) > 0 {
		return wrong
	}
	stored, err := readFacts(db)
	if err != nil {
		return []string{err.Error()}
	}
	for about, want := range known {
		if is := stored[about].is; is != want && !touched[about] {
			wrong = append(wrong, fmt.Sprintf("%s is %q, and %q was acknowledged before it began", about, is, want))
		}
	}
	for about := range stored {
		if known[about] == "" && !touched[about] {
			wrong = append(wrong, about+" is there, and no client has asked for it")
		}
	}
	return wrong
}

// look stops the load, compares all that is stored and published with what was
// acknowledged, and notes what the program holds.
func (s *soaked) look() {
	s.t.Helper()
	s.rest.Lock()
	defer s.rest.Unlock()
	s.compare()
	p := s.p.Load()
	support.Eventually(p.t, s.patience, "a pass is through", func() bool {
		a, err := p.try("POST", syncPath, "")
		return err == nil && a.status == 200
	})
	s.agree()
	p.client.CloseIdleConnections()
	if s.atRest == 0 {
		s.atRest = footprintOf(p.cmd.Process.Pid).files
	}
	support.Within(5*time.Second, func() bool { return footprintOf(p.cmd.Process.Pid).files <= s.atRest+spareFiles })
	h := footprintOf(p.cmd.Process.Pid)
	s.result.Rests = append(s.result.Rests, soak.Rest{At: time.Since(s.began), Life: int(s.life.Load()), Files: h.files, Threads: h.threads, Database: size(s.db)})
	s.result.Looks++
}

// compare looks at the file.
func (s *soaked) compare() {
	db := openDatabase(s.t, s.db)
	defer db.Close()
	for _, wrong := range unsound(s.t, db) {
		s.add(&s.result.Unsound, "%s", wrong)
	}
	all := make([]*witness, len(s.clients))
	for i, c := range s.clients {
		c.mu.Lock()
		defer c.mu.Unlock()
		all[i], c.again, c.stuck, c.cursor, c.listed = c.w, nil, false, "", nil
	}
	for _, wrong := range differences(s.t, db, all) {
		s.add(&s.result.Lost, "%s", wrong)
	}
	stored := storedFacts(s.t, db)
	for _, c := range s.clients { // so that what is lost is told once
		for prefix := range c.w.ids {
			if stored["usage "+prefix].is == "" {
				delete(c.w.ids, prefix)
				delete(c.w.facts, "usage "+prefix)
			}
		}
	}
}

// agree waits until DNS has what is wanted, and nothing else.
func (s *soaked) agree() {
	var wrong []string
	support.Within(s.patience, func() bool {
		wrong = s.astray()
		return len(wrong) == 0
	})
	for _, line := range wrong {
		s.add(&s.result.Astray, "%s", line)
	}
	for _, c := range s.clients {
		c.seen = map[string]bool{}
		for _, prefix := range c.anchors {
			c.seen[prefix] = true
		}
		for prefix := range c.names {
			if c.w.facts["usage "+prefix] == "" {
				delete(c.names, prefix)
			}
		}
	}
}

// ownerMark is what every value has of the database that has published it.
var ownerMark = regexp.MustCompile(` o=[0-9a-f]{12} `)

// value is what a usage is to publish, without the mark.
func (c *soakClient) value(prefix string) string {
	network, endpoints, _ := strings.Cut(c.w.facts["usage "+prefix], " ")
	if network == "" {
		return ""
	}
	if endpoints = strings.Trim(endpoints, `[]"`); endpoints == "" {
		endpoints = soakEndpoint
	}
	return "v=mesh1 n=" + network + " " + endpoints
}

// astray has the differences between what is wanted and what DNS answers. No client works
// meanwhile.
func (s *soaked) astray() (wrong []string) {
	want := [2][]string{slices.Clone(s.foreign[0]), slices.Clone(s.foreign[1])}
	for _, c := range s.clients {
		for prefix, name := range c.names {
			value := c.value(prefix)
			switch {
			case c.zone == ownZone:
				values, err := lookUp("udp", s.p.Load().dns, name)
				if is := ownerMark.ReplaceAllString(strings.Join(values, "|"), " "); err != nil || is != value {
					wrong = append(wrong, fmt.Sprintf("%s is %q, want %q: %v", name, is, value, err))
				}
			case value != "":
				want[c.zone-knotZone] = append(want[c.zone-knotZone], strings.TrimSuffix(name, ".")+" "+value)
			}
		}
	}
	for i, got := range [2][]string{transfer(s.t, s.server), s.cloud.All(goodZone)} {
		for n := range got {
			got[n] = ownerMark.ReplaceAllString(got[n], " ")
		}
		for _, record := range want[i] {
			if !slices.Contains(got, record) {
				wrong = append(wrong, fmt.Sprintf("%q is not at provider %d", record, i))
			}
		}
		for _, record := range got {
			if !slices.Contains(want[i], record) {
				wrong = append(wrong, fmt.Sprintf("%q is at provider %d, and is not wanted", record, i))
			}
		}
	}
	return wrong
}
