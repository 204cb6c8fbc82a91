package daemon

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figure reads a figure without labels off a page.
func figure(t *testing.T, page, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no %s in\n%s", name, page)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func processPage() string {
	var out strings.Builder
	WriteProcess(NewPage(&out))
	return out.String()
}

// The figures are this process's own: they follow what it does.
func TestProcess(t *testing.T) {
	before := processPage()
	for range 10 {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
	}
	if opened := figure(t, processPage(), "process_open_fds") - figure(t, before, "process_open_fds"); opened != 10 {
		t.Errorf("%v descriptors more, want 10", opened)
	}
	if age := float64(time.Now().Unix()) - figure(t, before, "process_start_time_seconds"); age < -1 || age > 3600 {
		t.Errorf("the process is %v s old", age)
	}
	resident, virtual := figure(t, before, "process_resident_memory_bytes"), figure(t, before, "process_virtual_memory_bytes")
	if resident < 1<<20 || resident > virtual {
		t.Errorf("%v octets resident of %v", resident, virtual)
	}
	if most := figure(t, before, "process_max_fds"); most < figure(t, before, "process_open_fds") {
		t.Errorf("process_max_fds %v", most)
	}
	used := figure(t, before, "process_cpu_seconds_total")
	for ends := time.Now().Add(time.Minute); figure(t, processPage(), "process_cpu_seconds_total") < used+0.01; {
		if time.Now().After(ends) {
			t.Fatalf("a minute of work, and the processor time is still %v", used)
		}
	}
}

func TestRuns(t *testing.T) {
	var runs Runs
	runs.Remember(time.Unix(100, 0))
	runs.Ended(time.UnixMilli(1_767_323_045_678), true)
	runs.Ended(time.Unix(1_800_000_000, 0), false)
	var out strings.Builder
	runs.Write(NewPage(&out), "x", "Things")
	const want = `# HELP x_runs_total Things, by result.
# TYPE x_runs_total counter
x_runs_total{result="ok"} 1
x_runs_total{result="failed"} 1
# HELP x_last_success_timestamp_seconds Things: when the last one ended well; 0 when none is known of.
# TYPE x_last_success_timestamp_seconds gauge
x_last_success_timestamp_seconds 1767323045.678
`
	if out.String() != want {
		t.Errorf("page:\n%s\nwant:\n%s", out.String(), want)
	}
}
