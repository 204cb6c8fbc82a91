package soak

import (
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// whole is a run of an hour that went well, with a heap that swings by half.
func whole() *Result {
	r := &Result{Program: "meshddns 1", Took: time.Hour, Backups: 3, Looks: 6, Goroutines: 40}
	chance := rand.New(rand.NewPCG(1, 1))
	for i, k := range Kinds {
		from := time.Duration(i) * 10 * time.Minute
		r.Phases = append(r.Phases, Phase{Name: "a phase of " + string(k), Kind: k, From: from, To: from + 9*time.Minute, Answers: 100, Met: 7})
	}
	for second := range 3600 {
		s := Sample{At: time.Duration(second) * time.Second, Life: 1 + second/600, Calm: second%60 < 20, Requests: int64(second) * 80}
		s.Private = 12<<20 + int64(chance.IntN(8<<20))
		s.Resident, s.Log, s.Database, s.Files, s.Threads = s.Private+10<<20, 3<<20, 1<<20, 30, 9
		s.Latency[Read] = LatencyOf([]time.Duration{time.Millisecond, 2 * time.Millisecond})
		s.States = map[string]int{"published": 150}
		r.Samples = append(r.Samples, s)
		if second%60 == 59 {
			r.Rests = append(r.Rests, Rest{At: s.At, Life: s.Life, Files: 25, Threads: 9, Database: 1 << 20})
		}
	}
	return r
}

// A run that went well is found well, and each fault that is planted in it is found, by
// its own check alone.
func TestChecks(t *testing.T) {
	for _, c := range whole().Checks() {
		if !c.OK {
			t.Errorf("%s: %s (want %s) without a fault", c.What, c.Is, c.Want)
		}
	}
	leak := func(octets int64) func(r *Result) {
		return func(r *Result) {
			for i := range r.Samples {
				r.Samples[i].Private += octets * (r.Samples[i].Requests % 48_000)
			}
		}
	}
	planted := []struct {
		check string
		plant func(r *Result)
	}{
		{"unexpected answers", func(r *Result) { r.Unexpected = []string{"x"} }},
		{"acknowledged and lost", func(r *Result) { r.Lost = []string{"x"} }},
		{"rows of", func(r *Result) { r.Unsound = []string{"x"} }},
		{"names that DNS", func(r *Result) { r.Astray = []string{"x"} }},
		{"faults of backups", func(r *Result) { r.Copies = []string{"x"} }},
		{"panics", func(r *Result) { r.Panics = []string{"x"} }},
		{"backups that were opened", func(r *Result) { r.Backups = 0 }},
		{"looks at all", func(r *Result) { r.Looks = 5 }},
		{"kinds of phases", func(r *Result) { r.Phases[2].Kind = Calm }},
		{"faults that met somebody", func(r *Result) { r.Phases[4].Met = 0 }},
		{"growth of memory", leak(400)},
		{"growth of memory", leak(2000)},
		{"growth of memory", func(r *Result) { r.Samples = r.Samples[:5] }},
		{"descriptors", func(r *Result) { r.Rests[55].Files += spareFiles + 1 }},
		{"threads", func(r *Result) { r.Rests[55].Threads += spareThreads + 1 }},
		{"size of the WAL", func(r *Result) { r.Samples[70].Log = mostLog + 1 }},
		{"size of the database", func(r *Result) { r.Rests[9].Database = 4 << 20 }},
		{"goroutines", func(r *Result) { r.Goroutines = 81 }},
		{"goroutines", func(r *Result) { r.Goroutines = 0 }},
	}
	found := map[string]bool{}
	for _, p := range planted {
		r := whole()
		p.plant(r)
		var failed []string
		for _, c := range r.Checks() {
			if !c.OK {
				failed = append(failed, c.What)
				found[c.What] = true
			}
		}
		if len(failed) != 1 || !strings.HasPrefix(failed[0], p.check) {
			t.Errorf("%s: found is %q", p.check, failed)
		}
	}
	for _, c := range whole().Checks() {
		if !found[c.What] {
			t.Errorf("no fault is planted for %q", c.What)
		}
	}
}

// A slope is as it was made, in each life, and the warm-up does not count.
func TestSlopes(t *testing.T) {
	r := whole()
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Private = 20<<20 + 100*(s.Requests%48_000); s.Requests%48_000 < 10_000 {
			s.Private = 5 << 20
		}
	}
	slopes := r.Slopes()
	if len(slopes) != 6 {
		t.Fatalf("%d slopes, want one for each of 6 lives", len(slopes))
	}
	for _, s := range slopes {
		if s.PerRequest < 99 || s.PerRequest > 101 {
			t.Errorf("life %d: %.1f octets a request, want 100", s.Life, s.PerRequest)
		}
	}
}

func TestLatencyOf(t *testing.T) {
	var times []time.Duration
	for n := range 101 {
		times = append(times, time.Duration(100-n)*time.Millisecond)
	}
	if l := LatencyOf(times); l != (Latency{Answers: 101, P50: 50 * time.Millisecond, P99: 99 * time.Millisecond}) {
		t.Errorf("%+v", l)
	}
	if l := LatencyOf(nil); l != (Latency{}) {
		t.Errorf("of nothing: %+v", l)
	}
}

// The page has every check, every phase and what is wrong, its charts are well-formed,
// and it needs no other file.
func TestPage(t *testing.T) {
	for name, r := range map[string]*Result{"an hour": whole(), "nothing": {}} {
		r.Unexpected = []string{"GET /<script> gave 500"}
		var b strings.Builder
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		want := []string{"1 did not hold", "GET /&lt;script&gt; gave 500", "Records by state", "milliseconds"}
		if name == "nothing" {
			want = want[1:]
		}
		for _, c := range r.Checks() {
			want = append(want, c.What)
		}
		for _, p := range r.Phases {
			want = append(want, p.Name)
		}
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the page has no %q", name, text)
			}
		}
		charts := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1)
		if len(charts) != 6 {
			t.Errorf("%s: %d charts, want 6", name, len(charts))
		}
		for _, chart := range charts {
			d := xml.NewDecoder(strings.NewReader(chart))
			err := error(nil)
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) || strings.Contains(chart, "NaN") || strings.Contains(chart, "Inf") {
				t.Errorf("%s: a chart is not well-formed: %v\n%.300s", name, err, chart)
			}
		}
		if regexp.MustCompile(`(src|href)=`).MatchString(page) {
			t.Errorf("%s: the page needs another file", name)
		}
	}
}
