package standby

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// story is a fixed history, in which a mistake of a control shows.
type story struct {
	name string
	pace pace // quick without one
	act  func(h *history)
	// guest: the clocks of a machine stand still while it is paused, as those of a virtual machine do. All changes are
	// durable then. The tests cannot stop a clock of the kernel, so the program and the agent subtract what a file says.
	guest bool
}

var stories = []story{
	{name: "paused in a commit", act: func(h *history) {
		for range 2 {
			m := h.writes(h.most())
			h.burst(m)
			h.outlived(m)
			h.writes(h.most())
		}
	}},
	{name: "Litestream goes on after a pause, without its agent", act: func(h *history) {
		m := h.writes(h.most())
		h.burst(m)
		agent := int(m.units[1].pid.Load())
		h.outlived(m, agent)
		h.note("%s goes on without its agent", m.name)
		<-time.After(time.Duration(h.pace.granted) * time.Second) // for Litestream to copy what it has
		syscall.Kill(agent, syscall.SIGCONT)
		h.settles()
		h.steady()
		other := h.writes(h.most())
		h.note("%s is killed", other.name)
		other.kill()
		h.writes(h.most())
		other.boot()
	}},
	{name: "the key is deleted while its holder is cut off", pace: pace{15, 3}, act: func(h *history) {
		m := h.writes(h.most())
		heal := h.cut(m, etcdHost)
		support.Must(h.t, h.etcdctl("del", "/meshddns/writer"))
		h.note("the key of %s is deleted", m.name)
		h.settles()
		heal()
	}},
	{name: "paused in a renewal", act: func(h *history) {
		m := h.writes(h.most())
		h.renewing(m)
		h.outlived(m)
		h.settles()
	}},
	{name: "a virtual machine is paused after a change", guest: true, act: func(h *history) {
		m := h.writes(h.most())
		h.steady()
		for i := range 8 {
			h.writers.begin(fmt.Sprint("v", i), "near", uint64(i), 100, 400, 0, m)
		}
		h.steady()
		m.pause()
		stopped := boottime()
		h.note("the virtual machine %s is paused", m.name)
		h.takenOver(m)
		m.stand(boottime() - stopped)
		m.resume()
		h.note("%s goes on, its clock stood still", m.name)
		h.settles()
	}},
}

// steady waits until a durable change is acknowledged.
func (h *history) steady() {
	h.t.Helper()
	since := boottime()
	support.Eventually(h.t, h.most(), "a durable change is acknowledged", func() bool { return h.diary.durable(since) })
}

// outlived pauses a machine until the other one writes, and has it go on, except some processes.
func (h *history) outlived(m *machine, except ...int) {
	h.t.Helper()
	m.pause()
	h.note("%s is paused", m.name)
	h.takenOver(m)
	m.resume(except...)
}

// takenOver waits until the other machine acknowledges a change.
func (h *history) takenOver(m *machine) {
	h.t.Helper()
	since := boottime()
	support.Eventually(h.t, h.most(), "the other machine acknowledges a change", func() bool { return h.diary.acknowledged(h.other(m).name, since) > 0 })
}

// settles waits for a takeover's time, so that what is wrong has time to happen.
func (h *history) settles() { <-time.After(h.takeover()) }

// renewing pauses a machine when its agent has an answer to a renewal, and has not looked at the clock again.
func (h *history) renewing(m *machine) {
	sprung := make(chan struct{})
	var once sync.Once
	h.keys.set(func(from *machine) {
		if from == m {
			once.Do(func() {
				m.pause()
				close(sprung)
			})
		}
	})
	defer h.keys.set(nil)
	select {
	case <-sprung:
	case <-time.After(h.most()):
		h.t.Error("the agent does not ask for its key")
	}
}

// TestStories runs each story, in which nothing is wrong.
func TestStories(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var variables []string
			if s.guest && os.Getenv(mark) == "" {
				needs(t)
				variables = guestClock.make(t)
			}
			if !inside(t, variables...) {
				return
			}
			if s.pace == (pace{}) {
				s.pace = quick()
			}
			s.pace.granted *= count(slowerName, 1)
			h := begin(t, s.guest, seed(t), s.pace)
			s.act(h)
			for _, fault := range h.finish() {
				if s.guest && regexp.MustCompile("^(two writers|a late call|a fallen serial)").MatchString(fault) {
					t.Logf("what the clock of a virtual machine allows: %s", fault)
				} else {
					t.Error(fault)
				}
			}
		})
	}
}

// slowerName is the variable for a factor of the term in a story.
const slowerName = "MESHDDNS_TEST_SLOWER"

// control is a mistake that a story has to show.
type control struct {
	name, story string
	program     []mistake // in the sources
	agent       []mistake // in its script
	finds       string
}

// mistake is a text that is in a file once, and what is put in its place.
type mistake struct{ file, old, new string }

var controls = []control{
	{name: "nothing after the fsync looks at the clock", story: "paused in a commit", finds: `two writers`, program: []mistake{
		{"internal/web/envelope.go", "w.intime = !w.adapter.Fence.over()", "w.intime = true"},
	}},
	{name: "one replica path for all terms", story: "Litestream goes on after a pause, without its agent", finds: `a lost write|no machine acknowledges`, agent: []mistake{
		{"", "REPLICA_TERM=$1 exec", "REPLICA_TERM=1 exec"},
	}},
	{name: "no wait before the first write", story: "the key is deleted while its holder is cut off", finds: `two writers|a late call`, agent: []mistake{
		{"", `[ "$now" -ge $((seen + span * 100)) ]`, `true`},
		{"", `[ "$now" -ge $((seen + (span + call) * 100)) ]`, `true`},
	}},
	{name: "a deadline from after the request", story: "paused in a renewal", finds: `two writers|a late call`, agent: []mistake{
		{"", "asked=$began until=$((began +", "clock; asked=$now until=$((now +"},
	}},
	{name: "a durable answer without a later renewal", story: "a virtual machine is paused after a change", finds: `a lost write`, program: []mistake{
		{"internal/term/replica.go", "		return t.Renewed(ctx)", "		return nil"},
		guestClock.program[0], guestClock.program[1],
	}, agent: guestClock.agent},
}

// guestClock makes the clocks of a virtual machine.
var guestClock = control{
	program: []mistake{{"internal/term/term.go", "	return time.Duration(now.Nano()).Seconds()", `	stood, _ := os.ReadFile(os.Getenv("STANDBY_STOOD"))
	hundredths, _ := strconv.ParseFloat(strings.TrimSpace(string(stood)), 64)
	return time.Duration(now.Nano()).Seconds() - hundredths/100`},
		{"internal/term/term.go", "import (", "import (\n	\"strconv\""},
	},
	agent: []mistake{{"", "now=$((10#${now/./}));", "now=$((10#${now/./} - $(cat \"$STANDBY_STOOD\" 2> /dev/null || echo 0)));"}},
}

// TestControls makes each mistake, and wants its story to show it. MESHDDNS_STANDBY_CONTROLS says which, as a regular expression.
func TestControls(t *testing.T) {
	chosen := os.Getenv("MESHDDNS_STANDBY_CONTROLS")
	if chosen == "" {
		t.Skip("long: MESHDDNS_STANDBY_CONTROLS=. runs all of them")
	}
	for _, c := range controls {
		if !regexp.MustCompile(chosen).MatchString(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needs(t)
			variables := c.make(t)
			var said string
			for try := range 3 { // on a slow machine a short term can end before the mistake shows
				out, err := again(t, "TestStories/"+c.story, append(variables, fmt.Sprint(slowerName, "=", 1<<try))...)
				if found := regexp.MustCompile(`(?m)^ +\w+_test.go:\d+: (.*(` + c.finds + `).*)$`).FindStringSubmatch(out); err != nil && found != nil {
					t.Logf("found in try %d: %s", try+1, found[1])
					return
				}
				said = out
			}
			t.Errorf("not found:\n%s", said)
		})
	}
}

// TestControlsFit wants each control to find its text.
func TestControlsFit(t *testing.T) {
	for _, c := range append(controls, guestClock, wallClock) {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range c.program {
				m.apply(t, readSource(t, m.file))
			}
			text := readSource(t, agentFile)
			for _, m := range c.agent {
				text = m.apply(t, text)
			}
		})
	}
}

func readSource(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	support.Must(t, err)
	return string(text)
}

// apply makes the mistake in a text.
func (m mistake) apply(t *testing.T, text string) string {
	t.Helper()
	if n := strings.Count(text, m.old); n != 1 {
		t.Fatalf("%q is %d times in %s, want once: the control is to be written anew", m.old, n, m.file)
	}
	return strings.Replace(text, m.old, m.new, 1)
}

// make builds the program and the script with the mistakes, and gives the variables with their paths.
func (c control) make(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	changed := map[string]string{}
	for _, m := range c.program {
		if _, there := changed[m.file]; !there {
			changed[m.file] = readSource(t, m.file)
		}
		changed[m.file] = m.apply(t, changed[m.file])
	}
	var replaced []string
	for file, text := range changed {
		there, err := filepath.Abs(filepath.Join(root, file))
		support.Must(t, err)
		here := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		support.WriteFile(t, here, text)
		replaced = append(replaced, fmt.Sprintf("%q: %q", there, here))
	}
	overlay := filepath.Join(dir, "overlay.json")
	support.WriteFile(t, overlay, `{"Replace": {`+strings.Join(replaced, ", ")+`}}`)
	program := filepath.Join(dir, "meshddns")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, root).CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	text := readSource(t, agentFile)
	for _, m := range c.agent {
		text = m.apply(t, text)
	}
	script := filepath.Join(dir, "meshddns-standby")
	support.WriteFile(t, script, text)
	return []string{agentName + "=" + script, programName + "=" + program}
}
