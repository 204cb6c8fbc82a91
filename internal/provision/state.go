package provision

import (
	"encoding/json"
	"iter"

	"meshddns/internal/mesh"
	"meshddns/internal/web"
)

// Source is the stored state for Pieces.
type Source struct {
	Owner         string
	Configuration any // nil if there is none
	Services      iter.Seq2[Service, error]
	Usages        iter.Seq2[Usage, error]
	Notifications any // an array
	Secondaries   any // an array
}

// Service is a service of a document.
type Service struct {
	mesh.ServiceMembers
	Config json.RawMessage `json:"config"`
}

// ServiceOf returns a registered service in the form of a document, with its secrets masked. ok is false
// if its config is no object, which a document cannot have.
func ServiceOf(v mesh.Service) (_ Service, ok bool) {
	return Service{ServiceMembers: v.ServiceMembers, Config: json.RawMessage(v.MaskedConfig())}, v.Documented()
}

// Usage is a usage of a document.
type Usage struct {
	mesh.Reservation
	NetworkName  string   `json:"network_name"`
	TXTEndpoints []string `json:"txt_endpoints"`
	Description  string   `json:"description"`
	mesh.Options
	Tenant bool         `json:"tenant,omitempty"`
	Leases []mesh.Lease `json:"leases,omitempty"`
}

// UsageOf returns a reserved usage in the form of a document. ok is false while it is being released.
func UsageOf(u mesh.Usage, leases []mesh.Lease) (d Usage, ok bool) {
	d = Usage{
		Reservation: mesh.Reservation{ServiceID: u.ServiceID, PrefixMode: u.Mode, NetworkID: &u.Network.V},
		NetworkName: mesh.NetworkName(u.Description), TXTEndpoints: append([]string{}, u.Endpoints...), Description: u.Description, Options: u.Options, Tenant: u.Tenant, Leases: leases,
	}
	if u.Mode == mesh.CustomMode {
		d.CustomPrefix = u.Prefix
	}
	return d, u.Documented()
}

// Pieces returns the document as the data of an answer, piece by piece, so that it is never in memory as
// a whole.
func (s Source) Pieces() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		begin := web.AppendJSON([]byte(`{"data":{"owner":`), s.Owner)
		if s.Configuration != nil {
			begin = web.AppendJSON(append(begin, `,"configuration":`...), s.Configuration)
		}
		_ = yield(begin, nil) &&
			list(`,"services":[`, s.Services, yield) &&
			list(`],"usages":[`, s.Usages, yield) &&
			yield(web.AppendJSON([]byte(`],"notifications":`), s.Notifications), nil) &&
			yield(append(web.AppendJSON([]byte(`,"secondaries":`), s.Secondaries), "}}\n"...), nil)
	}
}

// list yields the beginning of a list and its entries.
func list[T any](begin string, entries iter.Seq2[T, error], yield func([]byte, error) bool) (goOn bool) {
	if !yield([]byte(begin), nil) {
		return false
	}
	line := []byte("\n")
	for entry, err := range entries {
		if err != nil {
			yield(nil, err)
			return false
		}
		if !yield(web.AppendJSON(line, entry), nil) {
			return false
		}
		line = []byte(",\n")
	}
	return true
}
