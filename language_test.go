package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"meshddns/msg"
)

// The flag -language decides about requests without Accept-Language, and about no others. The
// guards' refusals follow it too.
func TestLanguageFlag(t *testing.T) {
	p := runProgram(t, []string{"MESHDDNS_LANGUAGE=en"})
	for _, test := range []struct {
		path, host, accepted string
		id                   msg.ID
		want                 msg.Language
	}{
		{"/nothing", "", "", msg.NotFound, msg.English},
		{"/nothing", "", "zh", msg.NotFound, msg.Chinese},
		{"/nothing", "", "fr", msg.NotFound, msg.Chinese},
		{"/", "evil.example", "", msg.HostNotAllowed, msg.English},
	} {
		request, err := http.NewRequest("GET", p.url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = test.host
		if test.accepted != "" {
			request.Header.Set("Accept-Language", test.accepted)
		}
		response, err := (&http.Client{Timeout: dnsPatience}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		want, _, _ := strings.Cut(test.id.In(test.want, "x"), "%")
		want, _, _ = strings.Cut(want, `"`)
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s, Accept-Language %q: %s, %v; want %q", test.path, test.accepted, body, err, want)
		}
	}
}
