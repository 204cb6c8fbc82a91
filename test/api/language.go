package api

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"meshddns/internal/msg"
	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// english is two words of English in a row. Values in quotes are no words, nor are names
// with "_", "-" or digits, nor what has more capitals than one.
var (
	english     = regexp.MustCompile(`(^|[^\w.:/-])([A-Z]?[a-z]['a-z]*)[,;:]? ([a-z]['a-z]*)($|[^\w./-])`)
	quotedValue = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	shownText   = regexp.MustCompile(`"(?:error|message)":\s*("(?:[^"\\]|\\.)+")|"warnings":\s*\[([^\]]*)\]`)
)

// englishIn gives the texts for people in a Chinese answer that have English in them.
func englishIn(t testing.TB, answer string) (found []string, texts int) {
	t.Helper()
	for _, match := range shownText.FindAllStringSubmatch(answer, -1) {
		var all []string
		if err := json.Unmarshal([]byte("["+match[1]+match[2]+"]"), &all); err != nil {
			t.Fatalf("%s: %v", match[0], err)
		}
		for _, text := range all {
			texts++
			if english.MatchString(quotedValue.ReplaceAllString(text, `""`)) {
				found = append(found, text)
			}
		}
	}
	return found, texts
}

// saidByOthers are words of the database and of clients in the golden answers.
var saidByOthers = []string{"insert usage", "insert binding", "disk full", "FOREIGN KEY constraint failed", "two words.example.com",
	"force, wait", "limit, cursor, after", "limit, cursor", "kind, usage_id, name, ", "bark, dingtalk, feishu, generic, gotify, healthchecks, ntfy, serverchan, telegram, wecom"}

// testChineseAnswers has no English in any Chinese answer of the golden files, nor where
// a provider fails without a word of its own.
func (suite Suite) testChineseAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	texts := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		support.Must(t, err)
		for block := range strings.SplitSeq(string(data), "\n\n") {
			given, answer, _ := strings.Cut(block, "\n-> ")
			preferred := regexp.MustCompile(`Accept-Language: .*`).FindAllString(given, -1)
			if msg.Preferred(strings.ReplaceAll(strings.Join(preferred, ","), "Accept-Language: ", "")) == msg.English {
				continue
			}
			for _, words := range saidByOthers {
				answer = strings.ReplaceAll(answer, words, "")
			}
			found, n := englishIn(t, answer)
			texts += n
			for _, text := range found {
				t.Errorf("%s: %s\n%s", file, given, text)
			}
		}
	}
	if texts < 200 {
		t.Errorf("%d texts, want more than 200", texts)
	}
}

// testChineseFaults has every provider fail in ways that leave nothing that it said.
func (suite Suite) testChineseFaults(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := suite.Start(t, Options{})
		a.Public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		check := func(what, body string) {
			_, answer := a.Do(t, "POST", "/api/v1/ddns/test", nil, body)
			found, _ := englishIn(t, answer)
			if len(found) > 0 || !strings.Contains(answer, `"ok":false`) {
				t.Errorf("%s: %q in %s", what, found, answer)
			}
		}
		page := cloudtest.Answer{Status: http.StatusOK, Body: "<html>"}
		for what, fault := range map[string]cloudtest.Fault{
			"reset": cloudtest.Reset, "cut": cloudtest.Cut, "page": cloudtest.Instead(page),
			"null": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "null"}), "object": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "{}"}),
			"number": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "7"}), "nothing": cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK}),
			"500": cloudtest.Instead(cloudtest.Answer{Status: http.StatusInternalServerError}), "404": cloudtest.Instead(cloudtest.Answer{Status: http.StatusNotFound}),
			"401": cloudtest.Instead(cloudtest.Answer{Status: http.StatusUnauthorized}), "429": cloudtest.Instead(cloudtest.Answer{Status: http.StatusTooManyRequests}),
			"redirect": cloudtest.Instead(cloudtest.Answer{Status: http.StatusFound, Header: map[string]string{"Location": "/x"}}),
		} {
			for range 20 {
				c.Fail(fault)
			}
			check(what, cloudConfig(c, nil))
			c.FailNoMore()
		}
		for name, value := range map[string]string{
			"endpoint": "http://192.0.2.1", "domain": "nobody.example.net", "access_key_secret": "with\na break", "access_key_id": "",
		} {
			check(name, cloudConfig(c, func(fields map[string]any) { fields[name] = value }))
		}
		for _, endpoint := range []string{"ftp://192.0.2.1", "https://user@192.0.2.1", "https://%zz", "http://127.0.0.1:1", "https://127.0.0.1:1"} {
			check(endpoint, cloudConfig(c, func(fields map[string]any) { fields["endpoint"] = endpoint }))
		}
	})
	a := suite.Start(t, Options{})
	for _, endpoint := range []string{"", "127.0.0.1:1", "127.0.0.1:0", "a b", "[::1", a.DNS} {
		for _, key := range []string{"key.", "md5:key", "a..b"} {
			for _, secret := range []string{"c2VjcmV0", "no base64!"} {
				_, answer := a.Do(t, "POST", "/api/v1/ddns/test", nil, fmt.Sprintf(
					`{"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":"example.com","txt_record_name":"x"}`, key, secret, endpoint))
				if found, _ := englishIn(t, answer); len(found) > 0 {
					t.Errorf("%q", found)
				}
			}
		}
	}
}

// testPrivateAddressIsTold configures endpoints at an address that nobody outside can
// reach, and what else is stored and cannot work.
func (suite Suite) testPrivateAddressIsTold(t *testing.T) {
	a := suite.Start(t, Options{IPv4: "192.168.1.2"})
	const config = `{"provider":"builtin","access_key_id":"k","access_key_secret":"s","domain":"example.com","txt_record_name":"x","sync_mode":"auto","enabled":true%s}`
	for _, test := range []struct{ method, path, body, want string }{
		{"PUT", "/config", fmt.Sprintf(config, `,"txt_endpoints":["tcp://{ipv4}:1"]`), `{"message":"the configuration is saved","data":{"warnings":["{ipv4} is the private address 192.168.1.2 now, which nobody outside can reach"]}}`},
		{"PUT", "/config", fmt.Sprintf(config, `,"txtEndpoints":[],"retry-interval":5`), `{"message":"the configuration is saved","data":{"warnings":[` +
			`"member \"txtEndpoints\" is unknown and ignored; is \"txt_endpoints\" meant?","member \"retry-interval\" is unknown and ignored; is \"retry_interval\" meant?","there are no txt_endpoints: the value that is published has no address"]}}`},
		{"PUT", "/config", fmt.Sprintf(config, `,"txt_endpoints":["tcp://a:1"]`), `{"message":"the configuration is saved"}`},
		{"POST", "/services", `{"name":"x","config":{"domain":"a.example.com","txt_endpoints":["tcp://{ipv4}:1"]}}`, `"warnings":["{ipv4} is the private address 192.168.1.2 now, which nobody outside can reach"]}}`},
		{"PUT", "/services/y", `{"name":"x","config":{"domain":"b.example.com"}}`, `updated_at":"`},
	} {
		response, answer := a.Do(t, test.method, "/api/v1/ddns"+test.path, http.Header{"Accept-Language": {"en"}}, test.body)
		if response.StatusCode != http.StatusOK || !strings.Contains(answer, test.want) || !strings.Contains(test.want, "warnings") && strings.Contains(answer, "warnings") {
			t.Errorf("%s %s %s: %s", test.method, test.path, test.body, answer)
		}
	}
	_, shown := a.Do(t, "GET", "/api/v1/ddns/config", nil, "")
	var got struct{ Data json.RawMessage }
	support.Must(t, json.Unmarshal([]byte(shown), &got))
	if _, answer := a.Do(t, "PUT", "/api/v1/ddns/config", nil, string(got.Data)); strings.Contains(answer, "warnings") {
		t.Errorf("what GET gives is warned of: %s", answer)
	}
}
