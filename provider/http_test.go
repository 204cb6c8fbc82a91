package provider

import (
	"errors"
	"strings"
	"testing"
	"time"

	"meshddns/provider/cloudtest"
)

// refusal is an answer of a vendor, and what it means.
type refusal struct {
	answer cloudtest.Answer
	kind   Kind
}

// testRefusals reads a name and has each answer come instead of the list. The
// words are in every error that the vendor gives.
func testRefusals(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error), refusals []refusal, words ...string) {
	t.Helper()
	client := openCloud(t, c, open)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		c.Fail(cloudtest.Instead(r.answer))
		_, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone)
		t.Log(err)
		if KindOf(err) != r.kind || err == nil {
			t.Errorf("HTTP %d %s: %v, want %s", r.answer.Status, r.answer.Body, err, r.kind)
			continue
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%v is a %T", err, err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not say %q", err, word)
			}
			r.answer.Body = strings.ReplaceAll(r.answer.Body, word, c.AccessKeySecret)
		}
		c.Fail(cloudtest.Instead(r.answer))
		_, err = client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone)
		t.Log(err)
		if err == nil || strings.Contains(err.Error(), c.AccessKeySecret) {
			t.Errorf("%v, want an error without the secret that the vendor repeats", err)
		}
	}
}

// openCloud makes a client that looks again at once.
func openCloud(t *testing.T, c *cloudtest.Cloud, open func(Credentials) (*Client, error)) *Client {
	t.Helper()
	client, err := open(Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: Secret(c.AccessKeySecret), Endpoint: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	client.poll = time.Millisecond
	return client
}
