package provision

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/answers"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// filled returns a struct with something in each field.
func filled[T any]() (v T) {
	for i := range reflect.TypeFor[T]().NumField() {
		switch field := reflect.ValueOf(&v).Elem().Field(i); into := field.Addr().Interface().(type) {
		case *json.RawMessage:
			*into = json.RawMessage(`{}`)
		case *[]string:
			*into = []string{"x"}
		default:
			field.SetString("x")
		}
	}
	return v
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMembersOnce: each option of a usage and each member of a service is in provisioning files, documents, answers,
// warnings and events, because all have the one struct. Each member of a lease is in files and documents.
func TestMembersOnce(t *testing.T) {
	u, v := mesh.Usage{Options: filled[mesh.Options]()}, mesh.Service{ServiceMembers: filled[mesh.ServiceMembers](), Config: "{}"}
	usage, _ := UsageOf(u, nil)
	service, _ := ServiceOf(v)
	leased, _ := UsageOf(u, []mesh.Lease{{}})
	for _, kind := range []struct {
		members, warned []string
		form            form
		shown           []any
		hidden          string // not in the event, which has it beside
	}{
		{strictjson.Fields(mesh.Options{}), strictjson.Fields(answers.Usage{}), usageForm,
			[]any{usage, answers.NewUsage(u, answers.ListedPublish{}, msg.English), events.Changed(u, u).Detail.After}, ""},
		{strictjson.Fields(mesh.ServiceMembers{}), strictjson.Fields(answers.Service{}), serviceForm,
			[]any{service, answers.NewService(v), events.OfService(mesh.Service{}, v).Detail.After}, "id"},
		{strictjson.Fields(mesh.LeaseMembers{}), strictjson.Fields(mesh.Lease{}), leaseForm, []any{leased}, ""},
	} {
		for _, name := range kind.members {
			if kind.form.members[name] == "" || !slices.Contains(kind.warned, name) {
				t.Errorf("%s is not in the form, or a client is not told that a name resembles it", name)
			}
			for i, shown := range kind.shown {
				if text := asJSON(t, shown); !strings.Contains(text, `"`+name+`":`) && (name != kind.hidden || i < 2) {
					t.Errorf("%s is not in %s", name, text)
				}
			}
		}
	}
}
