package mesh

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/internal/strictjson"
)

// ServiceMembers are the members of a service that requests, provisioning files, answers and events have in
// the form in which the database stores them.
type ServiceMembers struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ServiceBody is a service as clients write it.
type ServiceBody struct {
	ServiceMembers
	Config secrets.JSON `json:"config"` // an object, or a string with one in it
}

// Service returns the service of a body, which may be wrong. Masked secrets are still masked.
func (body ServiceBody) Service() Service {
	v := Service{ServiceMembers: body.ServiceMembers, Config: secrets.Secret(body.Config)}
	if json.Unmarshal(body.Config, &v.Config) != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, body.Config) == nil {
			v.Config = secrets.Secret(compact.String())
		}
	}
	return v
}

// Service is a registered DNS service.
type Service struct {
	ServiceMembers
	Config               secrets.Secret   // JSON, as registered
	Domain               sql.Null[string] // NULL if Config is no JSON object
	Zone                 string           // Domain in DNS form
	AccountID            int64            // 0 if the service has no account of its own
	UsageCount           int
	CreatedAt, UpdatedAt string
}

// ServiceZone is the zone of a service, with the provider that its config names.
type ServiceZone struct {
	Zone, Provider string
	AccountID      int64 // 0 if the service has no account of its own
}

// A service id is a part of URL paths.
const (
	maxServiceID   = 128
	serviceIDRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
)

// GoodServiceID reports whether id is a valid service id.
func GoodServiceID(id string) bool {
	return id != "" && len(id) <= maxServiceID && strings.Trim(id, serviceIDRunes) == "" && id != "." && id != ".."
}

// MaskedConfig returns the config as clients read it, with its secrets masked.
func (v Service) MaskedConfig() string { return secrets.MaskMembers(string(v.Config)) }

// Over returns the service as it replaces the stored one, with stored secrets in place of masks. ok is
// false if a mask has no stored secret, or one of another account.
func (v Service) Over(stored Service) (_ Service, ok bool) {
	config, used, err := secrets.RestoreMembers(string(v.Config), string(stored.Config))
	if err != nil || used && !sameAccount(v.Config, stored.Config) {
		return Service{}, false
	}
	v.Config = secrets.Secret(config)
	return v, true
}

// CheckNew refuses a service with a mask, because a new one has no stored secret.
func (v Service) CheckNew() error {
	_, _, err := secrets.RestoreMembers(string(v.Config), "{}")
	return err
}

// SameAs reports whether the service equals the stored one.
func (v Service) SameAs(stored Service) bool {
	changed, ok := v.Over(stored)
	return ok && v.ServiceMembers == stored.ServiceMembers &&
		strictjson.Equal([]byte(changed.Config), []byte(stored.Config))
}

// sameAccount reports whether two configs have the same account and address. Otherwise a stored key
// could be sent to the address of an attacker.
func sameAccount(a, b secrets.Secret) bool {
	x, errX := ParseServiceConfig(a)
	y, errY := ParseServiceConfig(b)
	return errX == nil && errY == nil &&
		x.Provider == y.Provider && x.AccessKeyID == y.AccessKeyID &&
		provider.NormalEndpoint(x.Provider, x.Endpoint) == provider.NormalEndpoint(y.Provider, y.Endpoint)
}

// Check checks a service in the order of the contract. The error joins all refusals.
func (v Service) Check() error {
	faults := []error{msg.RefuseIf(!GoodServiceID(v.ID), msg.ServiceIDInvalid), msg.RefuseIf(v.Name == "", msg.ServiceNameEmpty)}
	var config ServiceConfig
	if _, err := strictjson.Object([]byte(v.Config)); err != nil {
		fault := strictjson.Phrase(err)
		if fault.ID == msg.BodyEmpty {
			fault = msg.Phrase{ID: msg.ConfigEmpty}
		}
		faults = append(faults, msg.Refuse(msg.ServiceConfigShape, fault))
	} else if err := strictjson.Decode([]byte(v.Config), &config); err != nil {
		e, _ := errors.AsType[*strictjson.Error](err)
		faults = append(faults, msg.Refuse(msg.ServiceEntryType, e.Field, msg.Phrase{ID: e.Want}))
	}
	wrong := config.Domain != "" && dns.NameFault(dns.Parse(config.Domain)) != ""
	faults = append(faults, msg.RefuseIf(wrong, msg.ServiceDomainInvalid, config.Domain, LabelFault(config.Domain)))
	options := UsageChange{Formats: config.Formats, Check: config.Check}
	return errors.Join(append(faults, options.Normalize(), Usage{Endpoints: config.Endpoints}.CheckEndpoints())...)
}

// LabelFault returns the reason why a label that is not ASCII has no form in DNS, "" without one.
func LabelFault(domain string) any {
	if _, err := dns.ToASCII(domain); err != nil {
		return msg.Phrase{ID: msg.Because, Args: []any{msg.TextOf(err)}}
	}
	return ""
}

// AccountOf returns the id of the account that publishes for the service: its own, or that of the
// configuration if the service's zone is within the configuration's. 0 means none.
func (v Service) AccountOf(c Configuration) int64 {
	if v.AccountID == 0 && dns.Within(v.Zone, c.Zone) {
		return c.AccountID
	}
	return v.AccountID
}

// Documented reports whether the service can appear in a document. Rows from before the checks may
// have a config that is no JSON object.
func (v Service) Documented() bool { return v.Domain.Valid }

// ConfigMembers returns the names of the members of the config, also of unknown ones.
func (v Service) ConfigMembers() []string { return strictjson.Names([]byte(v.Config)) }

// ServiceConfig is the part of a service's config that the program reads, and that events have.
type ServiceConfig struct {
	Domain      string          `json:"domain"`
	Provider    string          `json:"provider"`
	AccessKeyID string          `json:"access_key_id"`
	Secret      secrets.Secret  `json:"access_key_secret"`
	Endpoint    string          `json:"endpoint"`
	Endpoints   []string        `json:"txt_endpoints"`
	Formats     []string        `json:"formats,omitempty"`
	Check       json.RawMessage `json:"check,omitempty"`
}

// ParseServiceConfig fails if text is no JSON object. A member of the wrong type counts as absent,
// because rows from before the checks may have one.
func ParseServiceConfig(text secrets.Secret) (c ServiceConfig, err error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return c, err
	}
	if entries == nil {
		return c, errors.New("config is null")
	}
	strictjson.EachField(&c, func(name string, field any) error {
		if json.Unmarshal(entries[name], field) != nil {
			reflect.ValueOf(field).Elem().SetZero()
		}
		return nil
	})
	if !bytes.HasPrefix(c.Check, []byte("{")) {
		c.Check = nil
	}
	return c, nil
}
