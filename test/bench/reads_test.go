package bench

import (
	"fmt"
	"testing"
	"time"
)

// reads compares how long calls take when there are few names and when there are
// very many, one after the other in turn.
func reads(t *testing.T, b *table) {
	s := size()
	var programs [2]*program
	names := [2]int{s.few, s.most}
	for i := range programs {
		programs[i] = start(t, published(t, builtin, names[i]))
	}
	page := func(after int) (method, path, body string) {
		return "GET", fmt.Sprintf("/usages/available?service_id=svc&limit=50&cursor=%d", after), ""
	}
	for _, call := range []struct {
		row     string
		request func(names, n int) (method, path, body string)
	}{
		{"reservation", func(_, n int) (string, string, string) {
			return "POST", "/usages", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"auto","network_id":%d}`, n)
		}},
		{"GET service", func(_, _ int) (string, string, string) { return "GET", "/services/svc", "" }},
		{"first page of a service's usages", func(_, _ int) (string, string, string) { return page(0) }},
		{"page in the middle", func(names, _ int) (string, string, string) { return page(names / 2) }},
		{"last page", func(names, _ int) (string, string, string) { return page(names - 50) }},
	} {
		var took [2][]time.Duration
		for n := range s.reads {
			for i, p := range programs {
				_, d := p.call(call.request(names[i], n))
				took[i] = append(took[i], d)
			}
		}
		of := ratio(took[1], took[0])
		b.add(t, line{
			row: call.row, measured: fmt.Sprintf("%d calls each, %d against %d names", s.reads, names[1], names[0]),
			figure: fmt.Sprintf("%.2f (%s / %s)", of, round(median(took[1])), round(median(took[0]))), must: "1.25", ok: of <= 1.25,
		})
	}
}
