package mesh

import (
	"strings"

	"meshddns/internal/msg"
)

// Fault is the reason of a failure, a conflict or a warning: a code with a text in each language, details, and the key
// with which it happened, as the account's user.
type Fault struct {
	Code   string   `json:"code,omitempty"`
	Detail msg.Text `json:"detail,omitempty"`
	Key    string   `json:"key,omitempty"`
}

// The users of an account.
const (
	UsedByConfiguration = "configuration"
	UsedByService       = "service " // followed by the service's id
	UsedByNothing       = "nothing"  // only a place still needs the key
)

// In returns the reason and the key in a language.
func (f Fault) In(language msg.Language) string {
	if f.Code == "" {
		return ""
	}
	text := msg.ID(f.Code).In(language)
	if f.Detail != "" {
		text += joint(language) + f.Detail.In(language)
	}
	return text + keyText(f.Key, language)
}

// For returns a fault as a client that may see one service reads it: without the network that has the name, and without
// the id of another service whose key was used. "" is for a client that may see all services.
func (f Fault) For(service string) Fault {
	if service != "" && f.Code == string(msg.NetworkConflict) {
		f.Detail = ""
	}
	if key, ok := strings.CutPrefix(f.Key, UsedByService); ok && service != "" && key != service {
		f.Key = ""
	}
	return f
}

// joint separates a text from its details.
func joint(language msg.Language) string {
	if language == msg.Chinese {
		return "："
	}
	return ": "
}

// keyText names the owner of a key.
func keyText(key string, language msg.Language) string {
	switch service, ok := strings.CutPrefix(key, UsedByService); {
	case ok:
		return msg.KeyOfService.In(language, service)
	case key == UsedByConfiguration:
		return msg.KeyOfConfiguration.In(language)
	case key == UsedByNothing:
		return msg.KeyOfNothing.In(language)
	}
	return ""
}
