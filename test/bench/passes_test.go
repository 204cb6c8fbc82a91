package bench

import (
	"fmt"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

// memory measures the most that the program takes for a pass that has nothing to
// change.
func memory(t *testing.T, b *table) {
	s := size()
	p := start(t, published(t, builtin, s.most))
	before := p.process.peak()
	r, took := p.sync(10)
	if want := s.most + 1; r.Counts["unchanged"] != want {
		t.Errorf("%d names are unchanged, want %d: %+v", r.Counts["unchanged"], want, r)
	}
	b.add(t, line{
		row:      "memory peak of a pass",
		measured: fmt.Sprintf("all of the process (VmHWM; %d MB at its start), %d unchanged names, builtin, %s", before, s.most, round(total(took))),
		figure:   fmt.Sprintf("%d MB", p.process.peak()), must: "64 MB", ok: p.process.peak() <= 64, counts: true,
	})
}

// idle measures the processor time of a program that has nothing to do but to look
// at names without a reason.
func idle(t *testing.T, b *table) {
	s := size()
	p := start(t, published(t, builtin.automatic(), s.most))
	p.costs(func() {}) // until it has begun
	before := p.process.processor()
	<-time.After(s.idle)
	share := (p.process.processor() - before).Seconds() / s.idle.Seconds()
	b.add(t, line{
		row:      "processor time with nothing changed",
		measured: fmt.Sprintf("%v of the audit at 1000 names/s, builtin, auto, %d names", s.idle, s.most),
		figure:   fmt.Sprintf("%.1f s in an interval of 5 min (%.1f %% of a processor)", share*300, share*100),
	})
}

// commitsPerRecord is how many transactions a new record may take.
const commitsPerRecord = 0.02

// bulk measures the publication of many new names by one call and then, with
// nothing changed, how often the provider is asked.
func bulk(t *testing.T, b *table) {
	for _, at := range bulkProviders {
		t.Run(at.name, func(t *testing.T) { bulkAt(t, b, at.remote(t), at.calls) })
	}
}

// bulkProviders are where many new names are published.
var bulkProviders = []struct {
	name   string
	remote func(t *testing.T) remote
	calls  int // for unchanged names; 0 is not measured
}{
	{"builtin", func(*testing.T) remote { return remote{account: builtin} }, 0},
	{"Knot", atKnot, 5},
	{"PowerDNS", atPowerDNS, 4}, // one of them asks whether changes move the serial
	{"Route 53", func(t *testing.T) remote { return atCloud(cloudtest.Route53(t)) }, 0},
}

func bulkAt(t *testing.T, b *table, r remote, calls int) {
	s := size()
	name := nameOfTest(t)
	p := start(t, reserved(t, r.account, s.bulk))
	commits, before := p.commits(), r.asked()
	report, took := p.sync(30)
	if want := s.bulk + 1; report.Counts["create"] != want {
		t.Errorf("%d names are made, want %d: %v", report.Counts["create"], want, report.Counts)
	}
	b.add(t, line{
		row: "POST /sync, new names, " + name, measured: fmt.Sprintf("%d names, %d calls", s.bulk, r.asked()-before),
		figure: fmt.Sprintf("%d POST, %s", len(took), round(total(took))), must: "1 POST, 60 s", ok: len(took) == 1 && took[0] < time.Minute,
	})
	each := float64(p.commits()-commits) / float64(s.bulk)
	b.add(t, line{
		row: "database commits per record, " + name, measured: fmt.Sprintf("%d commits, iChange of the log's index", p.commits()-commits),
		figure: fmt.Sprintf("%.4f", each), must: fmt.Sprint(commitsPerRecord), ok: each <= commitsPerRecord, counts: true,
	})
	if calls > 0 {
		unchanged(t, b, p, r, calls)
	}
}

// unchanged counts the calls of a pass that has nothing to change.
func unchanged(t *testing.T, b *table, p *program, r remote, most int) {
	s := size()
	before := r.asked()
	report, took := p.sync(30)
	if want := s.bulk + 1; report.Counts["unchanged"] != want {
		t.Errorf("%d names are unchanged, want %d: %+v", report.Counts["unchanged"], want, report)
	}
	calls := r.asked() - before
	b.add(t, line{
		row: "calls for unchanged names, " + nameOfTest(t), measured: fmt.Sprintf("%d names, %s", s.bulk, round(total(took))),
		figure: fmt.Sprint(calls), must: fmt.Sprint(most), ok: calls <= most, counts: true, grows: true,
	})
}

// unchangedAtAlibaba counts the calls where a list has pages of 500.
func unchangedAtAlibaba(t *testing.T, b *table) {
	t.Run("Alibaba", func(t *testing.T) {
		cloud := cloudtest.AliDNS(t)
		r := atCloud(cloud)
		db := published(t, r.account, size().bulk)
		value := cloud.Values(t, nameOf(first))
		for n := 1; n < size().bulk; n++ {
			cloud.Add(t, nameOf(first+n), valueOf(value[0], n))
		}
		unchanged(t, b, start(t, db), r, 5+size().bulk/500)
	})
}

// farAway counts the calls of POST /sync that it takes to publish many names at a
// provider that takes its time.
func farAway(t *testing.T, b *table) {
	const delay = 50 * time.Millisecond
	s := size()
	cloud := cloudtest.Webhook(t)
	cloud.Delay(delay)
	p := start(t, reserved(t, atCloud(cloud).account, s.far))
	_, took := p.sync(30)
	var each []string
	for _, d := range took {
		each = append(each, round(d))
	}
	b.add(t, line{
		row: "POST /sync, far away", measured: fmt.Sprintf("%d new names, a webhook %v away, %d calls", s.far, delay, cloud.Requests()),
		figure: fmt.Sprintf("%d POSTs %v", len(took), each), must: "3 POSTs", ok: len(took) <= 3, counts: true,
	})
}
