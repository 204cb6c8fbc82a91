// Package browser shows the status pages to a headless Chromium: both languages, both colour schemes, a
// phone and a desk, with axe-core as the judge of what people can perceive.
//
//	MESHDDNS_AXE=.../axe.min.js go test .            skips the tests where there is no chromium
//	MESHDDNS_AXE=.../axe.min.js go test . -update    also writes the pictures in docs
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the pictures in docs")

const (
	root       = "../.."
	patience   = time.Minute
	maxPicture = 150_000 // octets
)

// need returns a path to a program, or skips the test. With CI=true it fails the test instead.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	return path
}

// look is a way to look at the page.
type look struct {
	language, scheme string
	width, height    int64
}

func (l look) String() string { return fmt.Sprintf("%s-%s-%d", l.language, l.scheme, l.width) }

var pictures = map[look]string{
	{"en", "light", 1280, 1000}: "status-en.png",
	{"zh", "dark", 360, 1000}:   "status-zh.png",
}

// widest is the longest prefix, of the widest character.
var widest = strings.Repeat("w", 63)

// backgrounds has the colour of the body in each colour scheme.
var backgrounds = map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}

// TestPage looks at every page of a program with work, faults, nodes, a dead secondary and a history, and at the
// pages of mistakes, in all ways.
func TestPage(t *testing.T) {
	chromium := need(t, "chromium")
	axe, err := os.ReadFile(os.Getenv("MESHDDNS_AXE"))
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("MESHDDNS_AXE: %v", err)
	}
	url, name := startProgram(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	browser, quit := chromedp.NewContext(allocator)
	t.Cleanup(quit)
	if err := chromedp.Run(browser); err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"en", "zh"} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{360, 1280} {
				l := look{language, scheme, width, 1000}
				t.Run(l.String(), func(t *testing.T) {
					for _, path := range []string{
						"/", "/names?every=3600", "/names?q=_mesh.guest.office.mesh.example", "/names?q=none", "/names?q=" + widest, "/names/" + name, "/nodes", "/zones", "/events",
						"/events?kind=record.*&name=_mesh.rack-0.lab.example.net", "/names/none", "/none/none", "/?q=%25zz&x=%zz",
					} {
						visit(t, browser, l, url+path, string(axe))
					}
				})
			}
		}
	}
	for l, name := range pictures {
		info, err := os.Stat(filepath.Join(root, "docs", name))
		if err != nil || info.Size() >= maxPicture {
			t.Errorf("%s as %v: %v, %v", name, l, info, err)
		}
	}
}

// visit opens a page in a tab of its own, and judges it.
func visit(t *testing.T, browser context.Context, l look, url, axe string) {
	t.Helper()
	tab, leave := chromedp.NewContext(browser)
	defer leave()
	tab, cancel := context.WithTimeout(tab, patience)
	defer cancel()
	said := listen(tab)
	var background, language string
	var over float64
	act := func(actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(tab, actions...); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
	}
	act(cdplog.Enable(), network.Enable(),
		network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": l.language}),
		emulation.SetDeviceMetricsOverride(l.width, l.height, 1, l.width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}),
		chromedp.Navigate(url),
		chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &background),
		chromedp.Evaluate(`document.documentElement.lang`, &language),
		chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over))
	if background != backgrounds[l.scheme] || language != l.language || over > 0 {
		t.Errorf("%s: background %s, language %s, %v pixels too wide", url, background, language, over)
	}
	if name := pictures[l]; *update && name != "" && strings.HasSuffix(url, "/") {
		var picture []byte
		act(chromedp.CaptureScreenshot(&picture))
		if err := os.WriteFile(filepath.Join(root, "docs", name), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if errors := said(); !strings.Contains(url, "%zz") && !strings.HasSuffix(url, "/none") && len(errors) > 0 { // the browser itself tells of a status of 400 or 404
		t.Errorf("%s: the console has %q", url, errors)
	}
	if axe == "" {
		t.Log("MESHDDNS_AXE names no file: what axe-core says is not known")
		return
	}
	var found string
	act(cdppage.SetBypassCSP(true), chromedp.Navigate(url), chromedp.Evaluate(axe, nil),
		chromedp.Evaluate(`axe.run().then(r => JSON.stringify({passes: r.passes.length, violations: r.violations.map(v => [v.id, v.nodes.map(n => n.html + " " + n.failureSummary)])}))`,
			&found, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var report struct {
		Passes     int
		Violations [][]any
	}
	if err := json.Unmarshal([]byte(found), &report); err != nil || report.Passes < 10 || len(report.Violations) > 0 {
		t.Errorf("%s: axe-core: %v, %d rules hold, violations: %v", url, err, report.Passes, report.Violations)
	}
}

// listen returns a function that gives what the console has said.
func listen(tab context.Context) func() []string {
	var mu sync.Mutex
	var said []string
	add := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	chromedp.ListenTarget(tab, func(event any) {
		switch event := event.(type) {
		case *cdplog.EventEntryAdded:
			add(event.Entry.Text)
		case *cdpruntime.EventConsoleAPICalled:
			add(string(event.Type))
		case *cdpruntime.EventExceptionThrown:
			add(event.ExceptionDetails.Error())
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
}

// startProgram builds and starts the program with zones, names, nodes, faults and a history. It returns the
// URL of its API, and the id of a usage.
func startProgram(t *testing.T) (url, usage string) {
	t.Helper()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "meshddns"), filepath.Join(dir, "meshddns.db")
	build := exec.Command("go", "build", "-ldflags", "-X main.release=1.0", "-o", binary, ".")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	address, zone, nodes := freeAddress(t), freeAddress(t), freeAddress(t)
	program := exec.Command(binary, "-db", file, "-listen", address, "-dns-listen", zone, "-node-listen", nodes, "-ipv4", "203.0.113.7", "-ipv6", "none")
	program.Env, program.Stderr = []string{}, os.Stderr // its settings are in the environment too
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
	url = "http://" + address
	await(t, url+"/healthz", "")
	usage = configure(t, url, "http://"+nodes)
	fill(t, file)
	await(t, url+"/", "zones down: 1")
	await(t, url+"/names/"+usage, "retry_join")
	return url, usage
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await asks until the page has a text.
func await(t *testing.T, url, text string) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if answer, err := ask(t, "GET", url, ""); err == nil && strings.Contains(answer, text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatalf("%s never has %q", url, text)
		}
	}
}

func ask(t *testing.T, method, url, body string) (string, error) {
	return askAs(t, "", method, url, body)
}

func askAs(t *testing.T, token, method, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}, "Authorization": {token}}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, url, text)
	}
	return string(text), err
}

var uuid = regexp.MustCompile("[0-9a-f-]{36}")

// configure reserves names at the built-in server, and at a provider that refuses connections. A usage, whose id it
// returns, has other formats, a check and leases of nodes. A secondary does not answer.
func configure(t *testing.T, url, nodes string) (usage string) {
	t.Helper()
	must := func(method, path, body string) string {
		t.Helper()
		answer, err := ask(t, method, url+"/api/v1/ddns"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	must("PUT", "/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"mesh.example","txt_record_name":"@","enabled":true,"sync_mode":"auto","max_retries":0,"txt_endpoints":["tcp://{ipv4}:11010"]}`)
	must("PUT", "/services/office", `{"name":"Office","config":{"domain":"office.mesh.example","txt_endpoints":["tcp://{ipv4}:11010"]}}`)
	must("PUT", "/services/lab", `{"name":"Lab","config":{"domain":"lab.example.net","provider":"rfc2136","endpoint":"127.0.0.1:9","access_key_id":"key.","access_key_secret":"c2VjcmV0c2VjcmV0","txt_endpoints":["udp://{ipv4}:11010"]}}`)
	for i := range 12 {
		must("POST", "/usages", fmt.Sprintf(`{"service_id":"office","prefix_mode":"custom","custom_prefix":"team-%d","network_id":%d}`, i, i*100))
	}
	for i := range 2 {
		must("POST", "/usages", fmt.Sprintf(`{"service_id":"lab","prefix_mode":"custom","custom_prefix":"rack-%d","network_id":%d}`, i, 700))
	}
	must("POST", "/usages", `{"service_id":"office","prefix_mode":"custom","custom_prefix":"`+widest+`","network_id":18446744073709551615}`)
	usage = uuid.FindString(must("POST", "/usages", `{"service_id":"office","prefix_mode":"custom","custom_prefix":"nodes","network_id":9,
		"formats":["mesh1","urls","hostport","a","srv:_nodes._tcp","ip4p"],"check":{"kind":"tcp","interval":5,"fall":1}}`))
	for i := range 20 {
		var lease struct{ Data struct{ Token string } }
		answer := must("POST", "/usages/"+usage+"/leases", fmt.Sprintf(`{"slot":"node-%02d","ttl":3600,"schemes":["tcp","udp"],"cidrs":["203.0.113.0/24"]}`, i))
		if err := json.Unmarshal([]byte(answer), &lease); err != nil {
			t.Fatal(err)
		}
		if i == 19 { // which never renews
			continue
		}
		if _, err := askAs(t, "Bearer "+lease.Data.Token, "PUT", nodes+"/lease", fmt.Sprintf(`{"endpoints":["tcp://203.0.113.%d:11010"]}`, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	must("PUT", "/secondaries/ns2", `{"address":"127.0.0.1:9","zones":["*"]}`)
	return usage
}
