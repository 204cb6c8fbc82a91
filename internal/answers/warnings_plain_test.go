package answers

import (
	"slices"
	"strings"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

func TestConfigurationAdvice(t *testing.T) {
	for domain, fine := range map[string]bool{
		"a.test": true, "A.Test.": true, "bücher.test": true, "http://a.test": false, "a test": false, ".": false, "*.a.test": false, "a..test": false,
	} {
		if all := WarnDomain(domain); fine != (all == nil) || !fine && all[0].ID != msg.WarnDomain {
			t.Errorf("%q: %v", domain, all)
		}
	}
	decomposed := msg.Texts(WarnDomain("bu\u0308cher.test"), msg.English)
	if len(decomposed) != 1 || !strings.Contains(decomposed[0], "U+0308 is a part of a decomposed letter: write the letter composed") {
		t.Errorf("%q", decomposed)
	}
	for name, want := range map[string]msg.ID{
		"@": "", "_mesh": "", "hq": "", "hqa.test": "", "a.test.hq": "", "*": msg.WarnRecordName,
		"hq.a.test": msg.WarnNameTwice, "HQ.A.Test.": msg.WarnNameTwice, "a.test": msg.WarnNameTwice,
	} {
		if all := WarnRecordName(mesh.Configuration{Domain: "A.test", TXTRecordName: name}); (len(all) > 0) != (want != "") || want != "" && all[0].ID != want {
			t.Errorf("%q: %v", name, all)
		}
	}
	if WarnNumber("n", 5, 5) != nil || WarnNumber("n", -1, 5) == nil || WarnEndpoints([]string{"tcp://a:1"}) != nil || WarnEndpoints(nil) == nil {
		t.Error("numbers and endpoints")
	}
	if WarnBlanks("a", "a key") != nil || WarnBlanks("a", "a key\r\n") == nil || WarnBlanks("a", " a key") == nil {
		t.Error("blanks")
	}
	stored := mesh.Configuration{Provider: "builtin", SyncMode: mesh.Auto, Enabled: true}
	if WarnPaused(stored.Paused()) != nil || WarnPaused(mesh.Configuration{Provider: "builtin"}.Paused()) == nil {
		t.Error("paused")
	}
	inner := msg.Phrase{ID: msg.WarnEndpoints}
	outer := msg.Phrase{ID: msg.WarnAccount, Args: []any{inner}}
	if got := msg.Texts([]msg.Phrase{outer}, msg.Chinese); !slices.Equal(got, []string{msg.WarnAccount.In(msg.Chinese, inner.In(msg.Chinese))}) {
		t.Errorf("%q", got)
	}
}
