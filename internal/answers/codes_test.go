package answers_test

import (
	"testing"

	"meshddns/internal/builtin"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestCodesHaveTexts: each code of a record or a test has a text.
func TestCodesHaveTexts(t *testing.T) {
	for _, code := range []string{
		string(provider.Network), string(provider.Temporary), string(provider.Throttled), string(provider.BadCredentials), string(provider.Permission),
		string(provider.ClockSkew), string(provider.ZoneNotFound), string(provider.Conflict), string(provider.Changed), string(provider.Invalid),
		string(provider.Quota), string(provider.BadAnswer), string(provider.NameNotAllowed), string(provider.UnsupportedType), string(reconcile.NoResolver), reconcile.CodeUnknownProvider, string(builtin.NotListening),
		reconcile.CodeNoProvider, reconcile.CodeInvalid, reconcile.CodeInvalidName, reconcile.CodeNetworkConflict, reconcile.CodeCredentialsGone,
		reconcile.CodeDeletesForbidden, reconcile.CodeAddressUnknown, reconcile.CodeSameOwner, reconcile.CodeZoneUnreachable, reconcile.CodeDatabase,
		reconcile.CodeInterrupted, reconcile.CodeOrphan, reconcile.CodeNotSearched, reconcile.CodeWritesUsedUp, reconcile.CodeAdopted, reconcile.CodeNotInReplica, reconcile.CodeMaybeOurs,
	} {
		for _, language := range []msg.Language{msg.Chinese, msg.English} {
			if text := msg.ID(code).In(language); text == code || text == "" {
				t.Errorf("%s has no text", code)
			}
		}
	}
}
