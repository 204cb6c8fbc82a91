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

	"meshddns/test/cloudtest"
)

const (
	canaryToken   = "canary-token-0123456789"
	canaryRefused = "canary-that-is-refused"
	canaryNew     = "canary-that-is-new-0123"
	canaryNewer   = "canary-that-is-newer-0123"
)

// canaries is a program that knows secrets, and everything that it says.
type canaries struct {
	*program
	cloud  *cloudtest.Cloud
	first  string // its secret at the start
	folder string
	said   strings.Builder
}

// No token, key or signature is where another person reads it: in an answer, a log, an
// error, the command line or the environment of the process; and no old key is in the
// files of the database.
func TestCanary(t *testing.T) {
	t.Parallel()
	cloudtest.Each(t, func(t *testing.T, cloud *cloudtest.Cloud) {
		c := &canaries{cloud: cloud, first: cloud.AccessKeySecret, folder: t.TempDir()}
		c.begin(t)
		c.ask("POST", syncPath, "")
		if !strings.Contains(c.said.String(), `"create":2`) {
			t.Fatalf("nothing was published: %s", c.said.String())
		}
		cloud.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusBadRequest, Body: `{"message":"` + cloud.AccessKeySecret + `"}`}))
		c.ask("POST", "/api/v1/ddns/test", c.configuration("********"))
		cloud.FailNoMore()
		c.ask("POST", "/api/v1/ddns/test", c.configuration(canaryRefused))
		for _, path := range []string{configPath, "/api/v1/ddns/state", syncPath, "/metrics"} {
			c.ask("GET", path, "")
		}
		c.ask("PUT", configPath, c.configuration(cloud.AccessKeySecret)+cloud.AccessKeySecret)
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.logged("msg=reload")
		c.readProcess()
		c.ask("PUT", configPath, c.configuration(canaryNew))
		c.ask("PUT", configPath, c.configuration(canaryNewer))
		cloud.Rotate(canaryNewer)
		c.ask("POST", syncPath, "") // until then the first is kept, which has published the values
		c.stop()
		c.said.WriteString(c.log.String())
		c.searchSaid()
		c.searchDatabase()
	})
}

// begin starts the program with a token, and a key that comes as a credential.
func (c *canaries) begin(t *testing.T) {
	write := func(name, text string) string {
		name = filepath.Join(c.folder, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write("key", c.cloud.AccessKeySecret+"\n")
	document := write("provision.json", fmt.Sprintf(`{
		"configuration": {"provider":%q,"access_key_id":%q,"access_key_secret":{"credential":"key"},"endpoint":%q,"domain":%q,
			"txt_record_name":"@","enabled":true,"sync_mode":"manual","max_retries":0,"txt_endpoints":["tcp://203.0.113.7:1"]},
		"services": [{"id":"svc","name":"Site","config":{"domain":%q}}],
		"usages": [{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}]}`,
		c.cloud.Provider, c.cloud.AccessKeyID, c.cloud.URL, cloudtest.Zone, cloudtest.Zone))
	c.program = startWith(t, []string{"CREDENTIALS_DIRECTORY=" + c.folder}, []string{binary(t)}, "-db", c.database(),
		"-token-file", write("token", canaryToken+"\n"), "-provision", document, "-ipv4", "none", "-ipv6", "none")
}

func (c *canaries) database() string { return filepath.Join(c.folder, "meshddns.db") }

func (c *canaries) configuration(secret string) string {
	return fmt.Sprintf(`{"provider":%q,"access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"@","enabled":true}`,
		c.cloud.Provider, c.cloud.AccessKeyID, secret, c.cloud.URL, cloudtest.Zone)
}

// ask makes a request with the right token, and with another one.
func (c *canaries) ask(method, path, body string) {
	c.t.Helper()
	for _, bearer := range []string{canaryToken, "canary-token-that-is-wrong"} {
		a, err := c.try(method, path, body, "Authorization", "Bearer "+bearer)
		if err != nil {
			c.t.Fatal(err)
		}
		fmt.Fprintln(&c.said, a.header, a.body)
	}
}

// readProcess reads what others see of the process.
func (c *canaries) readProcess() {
	c.t.Helper()
	for _, of := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, of))
		if err != nil || len(text) == 0 {
			c.t.Fatalf("%s: %v", of, err)
		}
		c.said.Write(text)
	}
}

func (c *canaries) searchSaid() {
	for _, secret := range []string{canaryToken, c.first, canaryRefused, canaryNew, canaryNewer} {
		for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))} {
			if strings.Contains(c.said.String(), form) {
				c.t.Errorf("%q is said", form)
			}
		}
	}
	if strings.Contains(c.said.String(), "Signature=") {
		c.t.Error("a signature is said")
	}
}

func (c *canaries) searchDatabase() {
	for _, suffix := range []string{"", "-wal", "-shm", "-lock"} {
		content, err := os.ReadFile(c.database() + suffix)
		if err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
		for _, secret := range []string{canaryToken, c.first, canaryRefused, canaryNew} {
			if strings.Contains(string(content), secret) {
				c.t.Errorf("%q is in the database%s", secret, suffix)
			}
		}
		if suffix == "" && !strings.Contains(string(content), canaryNewer) {
			c.t.Error("the key in use is not found: the search finds nothing")
		}
	}
}
