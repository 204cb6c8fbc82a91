package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// hidden is a secret that is quoted in no way, encoded is it in base64, and quoted is one with a quote.
const hidden, encoded, quoted = "Zq9-hidden-Zq9", "WnE5LWhpZGRlbi1acTk=", `Zq9-\"hidden-Zq9`

// requestsWithSecrets gives requests, each a method, a path and a body, that have the secrets
// where they belong and where they do not.
func requestsWithSecrets() (requests [][3]string) {
	withConfig := func(provider, secret string) string {
		return `{"provider":"` + provider + `","access_key_id":"key.","access_key_secret":"` + secret + `","domain":"example.com","endpoint":"127.0.0.1:1",` +
			`"txt_record_name":"_txt","max_retries":0,"enabled":true,"write_test":true}`
	}
	withService := func(provider, secret string) string {
		return `{"name":"x","config":{"domain":"` + provider + `.example","provider":"` + provider + `","access_key_id":"key.","access_key_secret":"` + secret +
			`","endpoint":"127.0.0.1:1","API_TOKEN":"` + secret + `","deep":[{"password":"` + secret + `"}]}}`
	}
	add := func(method, path, body string) { requests = append(requests, [3]string{method, path, body}) }
	for _, provider := range []string{"builtin", "rfc2136", "nobody"} {
		for _, secret := range []string{hidden, encoded, quoted} {
			add("PUT", "/config", withConfig(provider, secret))
			add("POST", "/test", withConfig(provider, secret))
			add("POST", "/test", withConfig(provider, "********"))
			add("PUT", "/config", withConfig(provider, "********"))
			add("POST", "/services", withService(provider, secret))
			add("PUT", "/services/"+provider, withService(provider, secret))
			add("PUT", "/services/"+provider, withService(provider, "********"))
			add("POST", "/usages", `{"service_id":"`+provider+`","prefix_mode":"auto","network_id":1}`)
			for _, path := range []string{"/config", "/services", "/services/" + provider, "/usages/available", "/sync", "/providers", "/check-prefix?service_id=x&prefix=x"} {
				add("GET", path, "")
			}
			add("POST", "/sync?dry_run=1", "")
			add("POST", "/sync", "")
			add("GET", "/sync", "")
		}
	}
	for _, body := range []string{
		hidden, `"` + hidden + `"`, `{"access_key_secret":["` + hidden + `"]}`, `{"access_key_secret":"` + hidden + `"`, `{"access_key_secret":"` + hidden + `","access_key_secret":""}`,
		`{"name":"x","config":"` + hidden + `"}`, `{"name":"x","config":{"access_key_secret":["` + hidden + `"]}}`, `{"access_key_secret":"` + hidden + `"}`,
	} {
		for _, endpoint := range []string{"PUT /config", "POST /test", "POST /services", "PUT /services/x", "POST /usages"} {
			method, path, _ := strings.Cut(endpoint, " ")
			add(method, path, body)
		}
	}
	return requests
}

// Whatever is asked and whatever fails: no answer and no line of the log has
// a secret in it.
func (suite Suite) testSecretsStayInside(t *testing.T) {
	a := suite.Start(t, Options{})
	db := a.Open(t)
	defer db.Close()
	leaked := regexp.MustCompile(`hidden-Zq9|WnE5LWhp` + fmt.Sprintf("|%.6x|%.6x|%.6x", sha256.Sum256([]byte(hidden)), sha256.Sum256([]byte(encoded)), sha256.Sum256([]byte(`Zq9-"hidden-Zq9`))))
	for _, fault := range []string{``, `CREATE TRIGGER fault BEFORE UPDATE ON configuration BEGIN SELECT RAISE(ABORT, 'disk full'); END`, `ALTER TABLE services RENAME TO away`} {
		support.Exec(t, db, fault)
		for _, r := range requestsWithSecrets() {
			response, answer := a.Do(t, r[0], "/api/v1/ddns"+r[1], nil, r[2])
			if leaked.MatchString(answer + fmt.Sprint(response.Header)) {
				t.Errorf("%s %s %s: %s", r[0], r[1], r[2], answer)
			}
		}
	}
	a.Do(t, "GET", "/metrics", nil, "")
	for line := range strings.Lines(a.Logs.String()) {
		if leaked.MatchString(line) {
			t.Errorf("logged: %s", line)
		}
	}
}

// A vendor that repeats the secret in every answer does not bring it into an
// answer or a line of the log.
func (suite Suite) testCloudSecretsStayInside(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		a := suite.Start(t, Options{})
		a.Public.Resolver = &net.Resolver{PreferGo: true, Dial: noResolver}
		said := ""
		ask := func(method, path, body string) {
			response, answer := a.Do(t, method, "/api/v1/ddns"+path, nil, body)
			said += fmt.Sprintln(method, path, response.Header, answer)
		}
		calls := func() {
			ask("PUT", "/config", cloudConfig(c, nil))
			ask("PUT", "/services/svc", `{"name":"x","config":`+cloudConfig(c, nil)+`}`)
			ask("POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)
			ask("POST", "/test", cloudConfig(c, func(fields map[string]any) { fields["write_test"] = true }))
			ask("POST", "/sync?dry_run=1", "")
			ask("POST", "/sync", "")
			for _, path := range []string{"/config", "/services", "/services/svc", "/usages/available", "/sync"} {
				ask("GET", path, "")
			}
		}
		calls()
		octets := func(format string) (all string) {
			for _, octet := range []byte(c.AccessKeySecret) {
				all += fmt.Sprintf(format, octet)
			}
			return all
		}
		writings := []string{
			c.AccessKeySecret, strings.ToUpper(c.AccessKeySecret), octets("%%%02x"), octets("%%%02X"), octets("%02x"), octets("&#%d;"), octets(`\\u%04x`),
			base64.StdEncoding.EncodeToString([]byte(c.AccessKeySecret)), base64.RawURLEncoding.EncodeToString([]byte("k:" + c.AccessKeySecret)),
		}
		for _, status := range []int{200, 400, 401, 403, 429, 500} {
			for _, body := range []string{"%s", `{"Code":"%[1]s","Message":"%[1]s","code":"%[1]s","message":"%[1]s","error":"%[1]s","error_msg":"%[1]s"}`,
				`{"Response":{"Error":{"Code":"x","Message":"%s"},"RequestId":"r"}}`, "<ErrorResponse><Error><Code>x</Code><Message>%s</Message></Error></ErrorResponse>"} {
				for range 40 {
					c.Fail(cloudtest.Instead(cloudtest.Answer{Status: status, Body: fmt.Sprintf(body, strings.Join(writings, " ")+`\u001b\u009b\u202e`)}))
				}
				calls()
				c.FailNoMore()
			}
		}
		for line := range strings.Lines(said + a.Logs.String()) {
			for _, writing := range writings {
				if strings.Contains(line, writing) || strings.Contains(line, strings.ReplaceAll(writing, `\\`, `\`)) {
					t.Errorf("the secret is in %s", line)
				}
			}
			if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("what is no text is in %q", line)
			}
		}
	})
}

// Each change is one audit line, and so is a backup; a reading is none. It says who,
// what, which and how it ended, and nothing of a body.
func (suite Suite) testAuditLines(t *testing.T) {
	a := suite.Start(t, Options{})
	config := `{"provider":"builtin","access_key_id":"secret-key","access_key_secret":"secret-word","domain":"example.com","txt_record_name":"_txt"}`
	long := strings.Repeat("x", 5000)
	for _, step := range []struct{ method, path, body, want string }{
		{"PUT", "/services/svc", `{"name":"secret-name","config":{"domain":"example.com"}}`, `what="PUT /api/v1/ddns/services/{id}" id=svc status=200 code=""`},
		{"POST", "/services", `{"id":"svc","name":"x","config":{}}`, `what="POST /api/v1/ddns/services" id=svc status=409 code=service_exists`},
		{"POST", "/services", `{"name":"x","config":{}}`, `what="POST /api/v1/ddns/services" id=<id> status=200 code=""`},
		{"POST", "/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`, `what="POST /api/v1/ddns/usages" id=<id> status=200 code=""`},
		{"POST", "/usages", `secret-body`, `what="POST /api/v1/ddns/usages" id="" status=400 code=parameter_error`},
		{"DELETE", "/services/svc", "", `what="DELETE /api/v1/ddns/services/{id}" id=svc status=409 code=service_in_use`},
		{"DELETE", "/usages/gone?force=1", "", `what="DELETE /api/v1/ddns/usages/{id}?force" id=gone status=404 code=unknown_usage`},
		{"DELETE", "/usages/gone?force=1&secret=secret", "", `what="DELETE /api/v1/ddns/usages/{id}?force" id=gone status=400 code=query_invalid`},
		{"DELETE", "/usages/gone?force=0", "", `what="DELETE /api/v1/ddns/usages/{id}" id=gone status=404 code=unknown_usage`},
		{"DELETE", "/services/" + long, "", `what="DELETE /api/v1/ddns/services/{id}" id=` + long[:128] + ` status=404 code=unknown_service`},
		{"PUT", "/config", config, `what="PUT /api/v1/ddns/config" id="" status=200 code=""`},
		{"PUT", "/config", strings.Repeat("secret", 20000), `what="PUT /api/v1/ddns/config" id="" status=413 code=body_too_large`},
		{"POST", "/adopt?dry_run=1", `{"owner":"0123456789ab"}`, `what="POST /api/v1/ddns/adopt?dry_run" id=0123456789ab status=200 code=""`},
		{"POST", "/adopt", `{"owner":"0123456789ab"}`, `what="POST /api/v1/ddns/adopt" id=0123456789ab status=200 code=""`},
		{"GET", "/backup", "", `what="GET /api/v1/ddns/backup" id="" status=200 code=""`},
		{"GET", "/services", "", ""},
		{"GET", "/config", "", ""},
	} {
		before := len(a.Logs.String())
		a.Call(t, step.method, "/api/v1/ddns"+step.path, step.body)
		lines := regexp.MustCompile(`msg=change .*`).FindAllString(UUIDText.ReplaceAllString(a.Logs.String()[before:], "<id>"), -1)
		if got, want := strings.Join(lines, "\n"), "msg=change who=127.0.0.1 "+step.want; got != want && (step.want != "" || got != "") {
			t.Errorf("%s %.80s: logged\n%q, want\n%q", step.method, step.path, got, want)
		}
	}
	if strings.Contains(a.Logs.String(), "secret") {
		t.Error("a secret is in the log")
	}
}

// testEndpointSpellings writes one endpoint in several ways: it is one account, a mask
// keeps its secret, and the answers have each as it was typed.
func (suite Suite) testEndpointSpellings(t *testing.T) {
	a := suite.Start(t, Options{})
	const config = `{"provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q,"domain":"example.com","txt_record_name":"_txt"}`
	const service = `{"name":"x","config":{"domain":"example.com","provider":"webhook","access_key_id":"k","access_key_secret":%q,"endpoint":%q}}`
	secret := "the secret"
	for n, endpoint := range []string{"https://bridge.example/x", "HTTPS://Bridge.Example:443/x/", "bridge.example/x//"} {
		path := fmt.Sprint("/api/v1/ddns/services/s", n)
		a.Must(t, "PUT", path, fmt.Sprintf(service, "the secret", "https://bridge.example/x"))
		a.Must(t, "PUT", path, fmt.Sprintf(service, "********", endpoint))
		a.Must(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, secret, endpoint))
		for _, path := range []string{path, "/api/v1/ddns/config"} {
			if answer := a.Must(t, "GET", path, ""); !strings.Contains(answer, endpoint) {
				t.Errorf("%s: %s, want the endpoint %s as it was typed", path, answer, endpoint)
			}
		}
		secret = "********"
	}
	got := support.Rows(t, a.Reader, `SELECT endpoint, access_key_secret FROM accounts`)
	if want := []string{"https://bridge.example/x | the secret"}; !slices.Equal(got, want) {
		t.Errorf("accounts %q, want %q", got, want)
	}
	if status, code, answer := a.Call(t, "PUT", "/api/v1/ddns/config", fmt.Sprintf(config, "********", "https://bridge.example/y")); status != 400 || code != "secret_not_stored" {
		t.Errorf("another address: %d %s %s", status, code, answer)
	}
}
