package daemon

import (
	"strings"
	"testing"
	"time"
)

func TestPage(t *testing.T) {
	var requests Counter
	for n := range uint64(3) {
		requests.Add(n, Label{"route", `GET /a"\` + "\n"}, Label{"code", "200"})
	}
	requests.Add(0, Label{"route", ""}, Label{"code", "404"})
	var out strings.Builder
	page := NewPage(&out)
	page.Family("up", "gauge", "Whether it runs.")
	page.Figure(1)
	requests.Write(page, "requests_total", "Requests.")
	const want = `# HELP up Whether it runs.
# TYPE up gauge
up 1
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{route="",code="404"} 0
requests_total{route="GET /a\"\\\n",code="200"} 3
`
	if out.String() != want {
		t.Errorf("page:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestHistogram(t *testing.T) {
	var out strings.Builder
	page := NewPage(&out)
	page.Family("answer_seconds", "histogram", "Times.")
	page.Histogram([]time.Duration{10 * time.Microsecond, time.Second}, []uint64{3, 0, 2}, 2500*time.Millisecond, Label{"transport", "udp"})
	const want = `# HELP answer_seconds Times.
# TYPE answer_seconds histogram
answer_seconds_bucket{transport="udp",le="1e-05"} 3
answer_seconds_bucket{transport="udp",le="1"} 3
answer_seconds_bucket{transport="udp",le="+Inf"} 5
answer_seconds_sum{transport="udp"} 2.5
answer_seconds_count{transport="udp"} 5
`
	if out.String() != want {
		t.Errorf("page:\n%s\nwant:\n%s", out.String(), want)
	}
}
