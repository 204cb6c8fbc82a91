package provider_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/test/contract"
)

// scriptUser changes the zone of a bridge as another client of it does.
type scriptUser struct{ client *provider.Client }

func (u scriptUser) read(t testing.TB, name string) provider.RRset {
	t.Helper()
	set, err := u.client.Read(t.Context(), "example.com", name)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (u scriptUser) Values(t testing.TB, name string) (values [][]string) {
	for _, v := range u.read(t, name).Values {
		values = append(values, v)
	}
	return values
}

func (u scriptUser) change(t testing.TB, c provider.Change) {
	t.Helper()
	c.Zone, c.TTL, c.Seen = "example.com", 60, u.read(t, c.Name)
	if err := u.client.Change(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (u scriptUser) Add(t testing.TB, name string, value []string) {
	u.change(t, provider.Change{Name: strings.ToLower(name), Add: []provider.TXT{value}})
}

func (u scriptUser) Remove(t testing.TB, name string, value []string) {
	u.change(t, provider.Change{Name: strings.ToLower(name), Remove: []provider.TXT{value}})
}

// TestWebhookScript holds the client, before the script that docs/webhook.md shows, to all
// promises.
func TestWebhookScript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	page, err := os.ReadFile("../../docs/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "\n```python\n")
	script, _, ok := strings.Cut(script, "\n```\n")
	if !ok {
		t.Fatal("the page has no script")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	command := exec.CommandContext(ctx, python, "-c", script)
	command.Env = append(os.Environ(), "ZONE=example.com", "BRIDGE_USER=mesh", "BRIDGE_PASSWORD=open sesame", "PORT="+port, "FILE="+filepath.Join(t.TempDir(), "zone.json"))
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); command.Wait() })
	open := func() *provider.Client {
		client, err := provider.NewWebhook(provider.Credentials{AccessKeyID: "mesh", AccessKeySecret: "open sesame", Endpoint: "http://" + address})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	client, ticker := open(), time.NewTicker(20*time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(time.Minute); ; <-ticker.C {
		if zone, err := client.Zone(t.Context(), "a.example.com"); err == nil && zone == "example.com" {
			break
		} else if time.Now().After(limit) {
			t.Fatalf("the script does not answer: %v\n%s", err, said.String())
		}
	}
	user := scriptUser{open()}
	user.Add(t, "list.example.com", []string{"v=spf1 -all"})
	listed, err := client.ReadAll(t.Context(), "example.com", nil)
	if err != nil || !slices.ContainsFunc(listed["list.example.com"].Values, func(v provider.TXT) bool { return v.Text() == "v=spf1 -all" }) {
		t.Errorf("list: %v, %v", listed, err)
	}
	user.Remove(t, "list.example.com", []string{"v=spf1 -all"})
	contract.Test(t, contract.Backend{Client: client, Outside: user, Zone: "example.com", Foreign: plainValues()})
}
