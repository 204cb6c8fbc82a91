package mesh

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/internal/strictjson"
)

// ServiceMembers are the members of a service that requests, answers and provision files have in
// the form in which the database stores them.
type ServiceMembers struct {
	ID   string `json:"id"`
	Name string `json:"name"`
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

// A service id is a part of URL paths.
const (
	maxServiceID   = 128
	serviceIDRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
)

// GoodServiceID reports whether id is a valid service id.
func GoodServiceID(id string) bool {
	return id != "" && len(id) <= maxServiceID && strings.Trim(id, serviceIDRunes) == "" && id != "." && id != ".."
}

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

// ServiceConfig is the part of a service's config that the program reads.
type ServiceConfig struct {
	Domain      string          `json:"domain"`
	Provider    string          `json:"provider"`
	AccessKeyID string          `json:"access_key_id"`
	Secret      secrets.Secret  `json:"access_key_secret"`
	Endpoint    string          `json:"endpoint"`
	Endpoints   []string        `json:"txt_endpoints"`
	Formats     []string        `json:"formats"`
	Check       json.RawMessage `json:"check"`
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
	for name, into := range map[string]any{
		"domain": &c.Domain, "provider": &c.Provider, "access_key_id": &c.AccessKeyID,
		"access_key_secret": &c.Secret, "endpoint": &c.Endpoint, "check": &c.Check,
	} {
		json.Unmarshal(entries[name], into)
	}
	for name, into := range map[string]*[]string{"txt_endpoints": &c.Endpoints, "formats": &c.Formats} {
		if json.Unmarshal(entries[name], into) != nil {
			*into = nil
		}
	}
	return c, nil
}
