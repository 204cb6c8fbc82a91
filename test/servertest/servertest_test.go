package servertest

import (
	"slices"
	"testing"
)

func TestEach(t *testing.T) {
	Each(t, func(t *testing.T, s Server) {
		if got := s.TXT(t, "keep.example.com"); !slices.Equal(got, []string{`"existing value"`}) {
			t.Errorf("keep has %q", got)
		}
		serial := s.Serial(t)
		s.Update(t, `add new.example.com 60 TXT "two" "strings"`)
		if got := s.TXT(t, "new.example.com"); !slices.Equal(got, []string{`"two" "strings"`}) {
			t.Errorf("new has %q", got)
		}
		if s.Serial(t) == serial {
			t.Errorf("serial is still %s", serial)
		}
		if hasAPI := s.API != "" && s.APIKey != ""; hasAPI != (s.Name == "PowerDNS") {
			t.Errorf("API %q", s.API)
		}
	})
}
