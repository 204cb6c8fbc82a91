package migrations

import "testing"

// TestDomainIn: rows from before the checks have any config.
func TestDomainIn(t *testing.T) {
	for config, want := range map[string]string{
		"": "", "nothing": "", "null": "", "{}": "", `["domain"]`: "", `{"domain":7}`: "", `{"domain":null}`: "",
		`{"domain":"A.example","x":[1]}`: "A.example",
	} {
		if got := domainIn(config); got != want {
			t.Errorf("%s: %q, want %q", config, got, want)
		}
	}
}
