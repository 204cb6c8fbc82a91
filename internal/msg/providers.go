package msg

import (
	"cmp"
	_ "embed"
)

// Builtin is the name of the provider of the zones that this program serves.
const Builtin = "builtin"

//go:embed providers.txt
var providerLines string

// providerTexts has a text for each provider and field.
var providerTexts = Table(providerLines)

// Provider is the title of a provider, and the meaning of its fields.
type Provider struct{ Title, AccessKeyID, AccessKeySecret, Endpoint string }

// ProviderIn returns the texts for a provider in a language.
func ProviderIn(language Language, name string) Provider {
	text := func(field string) string { return providerTexts[ID(name+field)][language] }
	return Provider{text(" title"), text(" access_key_id"), text(" access_key_secret"), cmp.Or(text(" endpoint"), providerTexts["endpoint"][language])}
}
