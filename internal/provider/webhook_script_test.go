package provider_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/provider"
	"meshddns/test/contract"
	"meshddns/test/support"
)

// scriptUser changes the zone of a bridge as another client of it does.
type scriptUser struct{ client *provider.Client }

func (u scriptUser) read(t testing.TB, name string) provider.RRset {
	t.Helper()
	set, err := u.client.Read(t.Context(), "example.com", name, provider.TXT)
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
	u.change(t, provider.Change{Name: strings.ToLower(name), Type: provider.TXT, Add: []provider.Value{value}})
}

func (u scriptUser) Remove(t testing.TB, name string, value []string) {
	u.change(t, provider.Change{Name: strings.ToLower(name), Type: provider.TXT, Remove: []provider.Value{value}})
}

// TestWebhookScript runs the contract test of all clients with the script in docs/webhook.md.
func TestWebhookScript(t *testing.T) {
	t.Parallel()
	support.Need(t, "python3")
	page, err := os.ReadFile("../../docs/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "\n```python\n")
	script, _, ok := strings.Cut(script, "\n```\n")
	if !ok {
		t.Fatal("the page has no script")
	}
	var said support.Log
	var address string
	start := func() *exec.Cmd {
		address = support.FreeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		command := exec.Command("python3", "-c", script)
		command.Env = append(support.Environ(), "ZONE=example.com", "BRIDGE_USER=mesh", "BRIDGE_PASSWORD=open sesame", "PORT="+port, "FILE="+filepath.Join(t.TempDir(), "zone.json"))
		command.Stderr = &said
		support.Start(t, command)
		return command
	}
	command := start()
	open := func() *provider.Client {
		client, err := provider.NewWebhook(provider.Credentials{AccessKeyID: "mesh", AccessKeySecret: "open sesame", Endpoint: "http://" + address})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	client := open()
	answers := func() bool {
		if support.Ended(command) && strings.Contains(said.Take(), "Address already in use") {
			command = start() // another process took the port before the script had it
			client = open()
		}
		zone, err := client.Zone(t.Context(), "a.example.com")
		return err == nil && zone == "example.com"
	}
	if !support.Within(support.Limit, answers) {
		t.Fatalf("the script does not answer:\n%s", &said)
	}
	user := scriptUser{open()}
	user.Add(t, "list.example.com", []string{"v=spf1 -all"})
	listed, err := client.ReadAll(t.Context(), "example.com", nil)
	if err != nil || !slices.ContainsFunc(listed["list.example.com"].Values, func(v provider.Value) bool { return v.Text() == "v=spf1 -all" }) {
		t.Errorf("list: %v, %v", listed, err)
	}
	user.Remove(t, "list.example.com", []string{"v=spf1 -all"})
	contract.Test(t, contract.Backend{Client: client, Outside: user, Zone: "example.com", Foreign: plainValues()})
}
