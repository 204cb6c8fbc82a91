package reconcile

import (
	"encoding/json"
	"errors"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// TestFaultTextInBoth has a new fault and a stored one in both languages.
func TestFaultTextInBoth(t *testing.T) {
	failure := &provider.Error{
		Kind: provider.Throttled, Detail: msg.Textf("%s: HTTP %d", msg.Textf("%s at %s", msg.Say("list zones"), "dns.example"), 429),
		Err: errors.New("too fast for key s3cr3t"),
	}
	fault := Describe(failure, Account{Secret: "s3cr3t", UsedBy: mesh.UsedByConfiguration})
	report, err := json.Marshal(fault)
	if err != nil {
		t.Fatal(err)
	}
	var stored Fault
	if err := json.Unmarshal(report, &stored); err != nil {
		t.Fatal(err)
	}
	const english, chinese = "too many requests: list zones at dns.example: HTTP 429: too fast for key *** (key of the configuration)",
		"请求过于频繁，已被服务商限流：列出区域（dns.example）：HTTP 429: too fast for key ***（配置中的密钥）"
	for what, test := range map[string]struct {
		fault            Fault
		english, chinese string
	}{
		"now":       {fault, english, chinese},
		"stored":    {stored, english, chinese},
		"no detail": {Fault{Code: "quota"}, "a quota is used up", "超出服务商的配额"},
		"none":      {},
	} {
		if got := test.fault.In(msg.English); got != test.english {
			t.Errorf("%s: %q, want %q", what, got, test.english)
		}
		if got := test.fault.In(msg.Chinese); got != test.chinese {
			t.Errorf("%s: %q, want %q", what, got, test.chinese)
		}
	}
}
