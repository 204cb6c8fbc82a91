package provider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/test/contract"
	"meshddns/test/servertest"
)

// pdnsServer is another user of a PowerDNS server. It uses the HTTP API and nsupdate, and writes some
// values in spellings that only the API accepts.
type pdnsServer struct {
	servertest.Server
	spelled map[string]string // contents by values
}

// pdnsSpellings are contents that the API stores as they are written, and their values in DNS.
var pdnsSpellings = []struct {
	content string
	value   provider.Value
}{
	{`"é中文😀"`, provider.Value{"é中文😀"}},
	{"\"caf\xe9 \\\"\xff\\\"\"", provider.Value{"caf\xe9 \"\xff\""}},
	{`"` + strings.Repeat("u", 400) + `" "end"`, provider.Value{strings.Repeat("u", 255), strings.Repeat("u", 145), "end"}},
	{`"\097\098c \-d"`, provider.Value{"abc -d"}},
	{`"<&>" ""`, provider.Value{"<&>", ""}},
}

func newPDNSServer(t *testing.T) (pdnsServer, *provider.Client) {
	t.Helper()
	s := pdnsServer{servertest.PowerDNS(t), map[string]string{}}
	for _, r := range pdnsSpellings {
		s.spelled[fmt.Sprintf("%q", r.value)] = r.content
	}
	client, err := provider.NewPowerDNS(provider.Credentials{AccessKeyID: "localhost", AccessKeySecret: secrets.Secret(s.APIKey), Endpoint: s.API})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func (s pdnsServer) Add(t testing.TB, name string, value []string) {
	t.Helper()
	content, ok := s.spelled[fmt.Sprintf("%q", value)]
	if !ok {
		s.Server.Add(t, name, value)
		return
	}
	s.put(t, name, append(s.contents(t, name), content)...)
}

func (s pdnsServer) Remove(t testing.TB, name string, value []string) {
	t.Helper()
	content, ok := s.spelled[fmt.Sprintf("%q", value)]
	if !ok {
		s.Server.Remove(t, name, value)
		return
	}
	s.put(t, name, slices.DeleteFunc(s.contents(t, name), func(c string) bool { return c == content })...)
}

// call speaks to the API and gives the answer's body.
func (s pdnsServer) call(t testing.TB, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.API+"/api/v1/servers/localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-API-Key", s.APIKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s, %v\n%s", method, path, response.Status, answer, err, body)
	}
	return string(answer)
}

// quoted is a text in JSON, its octets as they are.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// put writes a set of records: contents, or with a "-" before them disabled ones.
func (s pdnsServer) put(t testing.TB, name string, contents ...string) {
	t.Helper()
	var records []string
	for _, content := range contents {
		content, off := strings.CutPrefix(content, "-")
		records = append(records, fmt.Sprintf(`{"content":%s,"disabled":%v}`, quoted(content), off))
	}
	s.call(t, http.MethodPatch, "/zones/example.com.", fmt.Sprintf(
		`{"rrsets":[{"name":"%s.","type":"TXT","changetype":"REPLACE","ttl":60,"records":[%s]}]}`, name, strings.Join(records, ",")))
}

// contents returns the contents at a name in the server's spelling, sorted, with "-" before disabled
// records.
func (s pdnsServer) contents(t testing.TB, name string) (contents []string) {
	t.Helper()
	body := s.call(t, http.MethodGet, "/zones/example.com.", "")
	var answer struct {
		RRsets []struct {
			Name, Type string
			Records    []struct {
				Content  json.RawMessage
				Disabled bool
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	for _, set := range answer.RRsets {
		if set.Name != name+"." || set.Type != "TXT" {
			continue
		}
		for _, r := range set.Records {
			content := strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(strings.TrimSuffix(strings.TrimPrefix(string(r.Content), `"`), `"`))
			if r.Disabled {
				content = "-" + content
			}
			contents = append(contents, content)
		}
	}
	slices.Sort(contents)
	return contents
}

func TestContractPowerDNS(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	s, client := newPDNSServer(t)
	foreign := oddValues()
	for _, r := range pdnsSpellings {
		foreign = append(foreign, r.value)
	}
	contract.Test(t, contract.Backend{Client: client, Outside: s, Zone: servertest.Zone, Foreign: foreign, Alias: "alias.example.com"})
}

func TestTypesPowerDNS(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	t.Parallel()
	s, client := newPDNSServer(t)
	contract.TestTypes(t, contract.Backend{Client: client, Outside: s, Zone: servertest.Zone, Alias: "alias.example.com"})
}

// changeNow reads a name and changes it.
func changeNow(t *testing.T, client *provider.Client, name string, add, remove []provider.Value) error {
	t.Helper()
	seen, err := client.Read(t.Context(), servertest.Zone, name, provider.TXT)
	if err != nil {
		t.Fatal(err)
	}
	return client.Change(t.Context(), provider.Change{Zone: servertest.Zone, Name: name, Type: provider.TXT, Seen: seen, Add: add, Remove: remove, TTL: 60})
}

// TestPowerDNSKeeps changes a name with everything that others can have there.
func TestPowerDNSKeeps(t *testing.T) {
	t.Parallel()
	const name = "kept.example.com"
	s, client := newPDNSServer(t)
	others := []string{`"same"`, `"\115ame"`, `"sam\e"`, `-"off"`, `-"\111ff"`, `-"é"`}
	for _, r := range pdnsSpellings {
		others = append(others, r.content)
	}
	s.put(t, name, others...)
	s.call(t, http.MethodPatch, "/zones/example.com.",
		`{"rrsets":[{"name":"kept.example.com.","type":"TXT","changetype":"REPLACE","comments":[{"content":"hands off","account":"ops","modified_at":1}]}]}`)
	want := func(step string, contents ...string) {
		t.Helper()
		contents = slices.Sorted(slices.Values(contents))
		if got := s.contents(t, name); !slices.Equal(got, contents) {
			t.Errorf("%s:\n%q, want\n%q", step, got, contents)
		}
		if set := s.call(t, http.MethodGet, "/zones/example.com.?rrset_name=kept.example.com.&rrset_type=TXT", ""); !strings.Contains(set, "hands off") {
			t.Errorf("%s: the comment is gone: %s", step, set)
		}
	}
	want("before", others...)
	for _, step := range []struct {
		what        string
		add, remove []provider.Value
		left        []string
	}{
		{"added", []provider.Value{{"one"}}, nil, append(slices.Clone(others), `"one"`)},
		{"replaced", []provider.Value{{"two"}}, []provider.Value{{"one"}}, append(slices.Clone(others), `"two"`)},
		{"removed", nil, []provider.Value{{"two"}}, others},
		{"same removed", nil, []provider.Value{{"same"}}, others[3:]},
	} {
		if err := changeNow(t, client, name, step.add, step.remove); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		want(step.what, step.left...)
	}
	for _, off := range []string{"off", "é"} {
		err := changeNow(t, client, name, []provider.Value{{off}}, nil)
		wantPDNSKind(t, "a disabled value once more", err, provider.Conflict)
	}
}

// TestPowerDNSRefusals sends changes that the server refuses.
func TestPowerDNSRefusals(t *testing.T) {
	s, client := newPDNSServer(t)
	s.call(t, http.MethodPost, "/zones", `{"name":"copy.example.","kind":"Slave","masters":["127.0.0.1"]}`)
	_, err := client.Zone(t.Context(), "a.copy.example")
	wantPDNSKind(t, "a zone that is a copy", err, provider.Permission)
	err = changeNow(t, client, "alias.example.com", []provider.Value{{"one"}}, nil)
	wantPDNSKind(t, "beside a CNAME", err, provider.Conflict)
	err = client.Change(t.Context(), provider.Change{Zone: servertest.Zone, Name: "a.example.net", Type: provider.TXT, Add: []provider.Value{{"one"}}, TTL: 60})
	wantPDNSKind(t, "out of the zone", err, provider.Invalid)
	for _, c := range []struct {
		what, id, key string
		kind          provider.Kind
	}{
		{"a wrong key", "localhost", "wrong", provider.BadCredentials},
		{"a wrong server id", "remotehost", s.APIKey, provider.ZoneNotFound},
		{"an id that is a path", "../servers/localhost", s.APIKey, provider.ZoneNotFound},
	} {
		client, err := provider.NewPowerDNS(provider.Credentials{AccessKeyID: c.id, AccessKeySecret: secrets.Secret(c.key), Endpoint: s.API})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Zone(t.Context(), servertest.Zone)
		wantPDNSKind(t, c.what, err, c.kind)
	}
	client.Zone(t.Context(), servertest.Zone)
	s.call(t, http.MethodDelete, "/zones/example.com.", "")
	_, err = client.Read(t.Context(), servertest.Zone, "a.example.com", provider.TXT)
	wantPDNSKind(t, "a zone that is gone", err, provider.ZoneNotFound)
}

// TestPowerDNSSerial: a zone whose serial no change moves has a warning, and no other zone has one.
func TestPowerDNSSerial(t *testing.T) {
	s, _ := newPDNSServer(t)
	for i, zone := range []string{
		`{"soa_edit_api":"DEFAULT"}`, `{"soa_edit_api":""}`, `{"soa_edit_api":"OFF"}`, `{"soa_edit_api":"increase"}`, `{"soa_edit_api":"SOA-EDIT"}`,
		`{"soa_edit_api":"SOA-EDIT","soa_edit":"EPOCH"}`, `{"soa_edit_api":"SOA-EDIT-INCREASE","soa_edit":""}`,
	} {
		s.call(t, http.MethodPut, "/zones/example.com.", zone)
		client, err := provider.NewPowerDNS(provider.Credentials{AccessKeyID: "localhost", AccessKeySecret: secrets.Secret(s.APIKey), Endpoint: s.API})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Serial(t)
		if err := changeNow(t, client, "serial.example.com", []provider.Value{{fmt.Sprint(i)}}, nil); err != nil {
			t.Fatal(err)
		}
		want := provider.Kind("")
		if s.Serial(t) == before {
			want = provider.SerialStands
		}
		if authority, err := client.Authority(t.Context(), servertest.Zone); err != nil || provider.KindOf(authority.Warning) != want {
			t.Errorf("%s: %v, %v, want %q", zone, authority.Warning, err, want)
		}
	}
}

// TestPowerDNSNotify: a secondary of a primary zone hears of each change at once.
func TestPowerDNSNotify(t *testing.T) {
	s, client := newPDNSServer(t)
	secondary, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer secondary.Close()
	s.call(t, http.MethodPut, "/zones/example.com./metadata/ALSO-NOTIFY", fmt.Sprintf(`{"kind":"ALSO-NOTIFY","metadata":[%q]}`, secondary.LocalAddr()))
	s.call(t, http.MethodPut, "/zones/example.com.", `{"kind":"Master"}`)
	change := func(name string) provider.Change {
		return provider.Change{Zone: servertest.Zone, Name: name, Type: provider.TXT, Add: []provider.Value{{"one"}}, TTL: 60}
	}
	for what, write := range map[string]func() error{
		"one": func() error { return client.Change(t.Context(), change("one.example.com")) },
		"many": func() error {
			return errors.Join(client.ChangeAll(t.Context(), []provider.Change{change("two.example.com"), change("three.example.com")})...)
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		secondary.SetReadDeadline(time.Now().Add(30 * time.Second)) // by itself the server looks for news each minute
		packet := make([]byte, 512)
		n, from, err := secondary.ReadFrom(packet)
		if err != nil || n < 12 || packet[2]>>3&15 != 4 {
			t.Fatalf("%s: %x, %v, want a NOTIFY", what, packet[:n], err)
		}
		packet[2] |= 0x80
		secondary.WriteTo(packet[:n], from)
	}
}

func wantPDNSKind(t *testing.T, what string, err error, kind provider.Kind) {
	t.Helper()
	if err == nil || provider.KindOf(err) != kind {
		t.Errorf("%s: %v, want %s", what, err, kind)
	}
}
