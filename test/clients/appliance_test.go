// The built program, with one usage.

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// root is the folder of the program's module.
const root = "../.."

// appliance is a running program.
type appliance struct {
	world *world
	api   string // URL of the API
	usage string // id
}

// start builds and starts the program with its DNS server and its node listener, and reserves one name.
// All readers of this process ask its DNS server.
func start(t *testing.T) *appliance {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "meshddns")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	listen, zones, node := freeAddress(t), freeAddress(t), freeAddress(t)
	program := exec.Command(binary, "-db", filepath.Join(dir, "meshddns.db"), "-listen", listen, "-dns-listen", zones, "-node-listen", node,
		"-ipv4", "none", "-ipv6", "none")
	program.Env, program.Stderr = []string{}, os.Stderr // its settings are in the environment too
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	t.Cleanup(func() { program.Process.Kill(); <-ended })
	a := &appliance{
		world: &world{dns: zones, node: "http://" + node, parent: "berlin.mesh.example.com", irohID: irohID, resolver: useServer(zones)},
		api:   "http://" + listen,
	}
	a.await(t, ended)
	a.must(t, "PUT", "/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto"}`)
	a.must(t, "PUT", "/services/mesh", `{"name":"Mesh","config":{"domain":"mesh.example.com"}}`)
	var reserved struct{ Data struct{ ID string } }
	answer := a.must(t, "POST", "/usages?wait=10", `{"service_id":"mesh","prefix_mode":"custom","custom_prefix":"berlin","network_id":42}`)
	if err := json.Unmarshal(answer, &reserved); err != nil {
		t.Fatal(err)
	}
	a.usage = reserved.Data.ID
	return a
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

// await waits until the program answers, and fails the test when the program ends before.
func (a *appliance) await(t *testing.T, ended chan error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		if answer, err := http.Get(a.api + "/healthz"); err == nil {
			answer.Body.Close()
			return
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("the program ends at its start: %v", err)
		case <-deadline:
			t.Fatal("the program does not start")
		}
	}
}

// must calls the API, and returns the body of a success.
func (a *appliance) must(t *testing.T, method, path, body string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.api+"/api/v1/ddns"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Language", "en")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s %v", method, path, answer.Status, text, err)
	}
	return text
}

// change changes the usage, and waits until all its records stand.
func (a *appliance) change(t *testing.T, r round) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"txt_endpoints": r.texts(), "formats": r.formats, "peer_id": r.peer})
	if err != nil {
		t.Fatal(err)
	}
	answer := a.must(t, "PATCH", fmt.Sprintf("/usages/%s?wait=30", a.usage), string(body))
	var changed struct {
		Data struct {
			Publish struct {
				State   string
				Formats []struct {
					Format, State string
					Values        []string
				}
			}
		}
	}
	if err := json.Unmarshal(answer, &changed); err != nil {
		t.Fatal(err)
	}
	publish := changed.Data.Publish
	if r.has("mesh1") && publish.State != "published" {
		t.Fatalf("not published after 30 seconds: %s", answer)
	}
	for _, set := range publish.Formats {
		if set.State != "published" && len(set.Values) > 0 {
			t.Fatalf("%s is not published after 30 seconds: %s", set.Format, answer)
		}
	}
}
