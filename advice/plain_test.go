package advice

import (
	"slices"
	"testing"

	"meshddns/msg"
)

func TestConfigurationAdvice(t *testing.T) {
	for domain, fine := range map[string]bool{
		"a.test": true, "A.Test.": true, "bücher.test": true, "http://a.test": false, "a test": false, ".": false, "*.a.test": false, "a..test": false,
	} {
		if all := Domain(domain); fine != (all == nil) || !fine && all[0].ID != msg.WarnDomain {
			t.Errorf("%q: %v", domain, all)
		}
	}
	if RecordName("_mesh.a.test") != nil || RecordName("*.a.test") == nil {
		t.Error("record names")
	}
	if Number("n", 5, 5) != nil || Number("n", -1, 5) == nil || Endpoints([]string{"tcp://a:1"}) != nil || Endpoints(nil) == nil {
		t.Error("numbers and endpoints")
	}
	if Enabled(nil) != nil || Enabled([]string{"enabled"}) != nil || Enabled([]string{"Enabled"}) == nil {
		t.Error("enabled")
	}
	inner := Warning{ID: msg.WarnEnabled}
	outer := Warning{ID: msg.WarnAccount, Args: []any{inner}}
	if got := Texts([]Warning{outer}, msg.Chinese); !slices.Equal(got, []string{msg.WarnAccount.In(msg.Chinese, inner.In(msg.Chinese))}) {
		t.Errorf("%q", got)
	}
}
