package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"meshddns/provider/cloudtest"
)

// No token, key or signature is where somebody else reads it: in an answer, a log, an
// error, the command line or the environment of the process; and no old key is in the
// files of the database.
func TestCanary(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		const token = "canary-token-0123456789"
		dir := t.TempDir()
		path := filepath.Join(dir, "meshddns.db")
		write := func(name, text string) string {
			t.Helper()
			name = filepath.Join(dir, name)
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return name
		}
		write("key", c.AccessKeySecret+"\n")
		document := write("provision.json", fmt.Sprintf(`{
			"configuration": {"provider":%q,"access_key_id":%q,"access_key_secret":{"credential":"key"},"endpoint":%q,"domain":%q,
				"txt_record_name":"@","enabled":true,"sync_mode":"manual","max_retries":0,"txt_endpoints":["tcp://203.0.113.7:1"]},
			"services": [{"id":"svc","name":"Site","config":{"domain":%q}}],
			"usages": [{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}]}`,
			c.Provider, c.AccessKeyID, c.URL, cloudtest.Zone, cloudtest.Zone))
		p := startWith(t, []string{"CREDENTIALS_DIRECTORY=" + dir}, binary(t), "-db", path, "-token-file", write("token", token+"\n"), "-provision", document, "-ipv4", "none", "-ipv6", "none")
		var said strings.Builder
		ask := func(method, path, body string) {
			t.Helper()
			for _, bearer := range []string{token, "canary-token-that-is-wrong"} {
				a, err := p.try(method, path, body, "Authorization", "Bearer "+bearer)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(&said, a.header, a.body)
			}
		}
		config := func(secret string) string {
			return fmt.Sprintf(`{"provider":%q,"access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"@","enabled":true}`,
				c.Provider, c.AccessKeyID, secret, c.URL, cloudtest.Zone)
		}
		ask("POST", syncPath, "")
		if !strings.Contains(said.String(), `"create":2`) {
			t.Fatalf("nothing was published: %s", said.String())
		}
		c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusBadRequest, Body: `{"message":"` + c.AccessKeySecret + `"}`}))
		ask("POST", "/api/v1/ddns/test", config("********"))
		c.FailNoMore()
		ask("POST", "/api/v1/ddns/test", config("canary-that-is-refused"))
		ask("GET", configPath, "")
		ask("GET", "/api/v1/ddns/state", "")
		ask("GET", syncPath, "")
		ask("GET", "/metrics", "")
		ask("PUT", configPath, config(c.AccessKeySecret)+c.AccessKeySecret)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.logged("msg=reload")
		for _, of := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, of))
			if err != nil || len(text) == 0 {
				t.Fatalf("%s: %v", of, err)
			}
			said.Write(text)
		}
		ask("PUT", configPath, config("canary-that-is-new-0123"))
		ask("PUT", configPath, config("canary-that-is-newer-0123"))
		p.stop()
		said.WriteString(p.log.String())
		for _, secret := range []string{token, c.AccessKeySecret, "canary-that-is-refused", "canary-that-is-new"} {
			for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(said.String(), form) {
					t.Errorf("%q is said", form)
				}
			}
		}
		if strings.Contains(said.String(), "Signature=") {
			t.Error("a signature is said")
		}
		for _, suffix := range []string{"", "-wal", "-shm", "-lock"} {
			content, err := os.ReadFile(path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			for _, secret := range []string{token, c.AccessKeySecret, "canary-that-is-refused", "canary-that-is-new-"} {
				if strings.Contains(string(content), secret) {
					t.Errorf("%q is in the database%s", secret, suffix)
				}
			}
			if suffix == "" && !strings.Contains(string(content), "canary-that-is-newer") {
				t.Error("the key in use is not found: the search finds nothing")
			}
		}
	})
}
