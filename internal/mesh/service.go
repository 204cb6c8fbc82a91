package mesh

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/internal/strictjson"
)

// Service is a registered DNS service.
type Service struct {
	ID, Name             string
	Config               secrets.Secret   // JSON, as registered
	Domain               sql.Null[string] // not valid when Config is not a JSON object
	Zone                 string           // the domain as DNS has it
	AccountID            int64            // 0 when it has no account of its own
	UsageCount           int
	CreatedAt, UpdatedAt string
}

// What the id of a service may be: it is a part of paths.
const (
	maxServiceID   = 128
	serviceIDRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
)

// GoodServiceID reports whether a service can have an id.
func GoodServiceID(id string) bool {
	return id != "" && len(id) <= maxServiceID && strings.Trim(id, serviceIDRunes) == "" && id != "." && id != ".."
}

// Over gives the service as it replaces a stored one, whose secrets take the place of masks. It
// fails (ok false) when a mask has no secret behind it, or one of another account.
func (v Service) Over(stored Service) (_ Service, ok bool) {
	config, used, err := secrets.RestoreMembers(string(v.Config), string(stored.Config))
	if err != nil || used && !sameAccount(v.Config, stored.Config) {
		return Service{}, false
	}
	v.Config = secrets.Secret(config)
	return v, true
}

// SameAs reports whether the service is registered already as it is here.
func (v Service) SameAs(stored Service) bool {
	changed, ok := v.Over(stored)
	return ok && v.ID == stored.ID && v.Name == stored.Name &&
		strictjson.Equal([]byte(changed.Config), []byte(stored.Config))
}

// sameAccount reports whether two configs are for one account at one address: otherwise a stored
// key could be sent to the address of a stranger.
func sameAccount(a, b secrets.Secret) bool {
	x, errX := ParseServiceConfig(a)
	y, errY := ParseServiceConfig(b)
	return errX == nil && errY == nil &&
		x.Provider == y.Provider && x.AccessKeyID == y.AccessKeyID &&
		provider.NormalEndpoint(x.Provider, x.Endpoint) == provider.NormalEndpoint(y.Provider, y.Endpoint)
}

// AccountOf gives the account that publishes for the service: its own, else that of the
// configuration when the zone is in the configuration's zone, else 0.
func (v Service) AccountOf(c Configuration) int64 {
	if v.AccountID == 0 && dnsname.Within(v.Zone, c.Zone) {
		return c.AccountID
	}
	return v.AccountID
}

// Documented reports whether a document can have the service: its config is an object, which that
// of a row older than the checks need not be.
func (v Service) Documented() bool { return v.Domain.Valid }

// ServiceConfig is what the program reads in the config of a service.
type ServiceConfig struct {
	Domain      string         `json:"domain"`
	Provider    string         `json:"provider"`
	AccessKeyID string         `json:"access_key_id"`
	Secret      secrets.Secret `json:"access_key_secret"`
	Endpoint    string         `json:"endpoint"`
	Endpoints   []string       `json:"txt_endpoints"`
}

// ParseServiceConfig fails when text is not a JSON object. An entry of another type counts as
// absent: such rows may be older than the checks.
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
		"access_key_secret": &c.Secret, "endpoint": &c.Endpoint,
	} {
		json.Unmarshal(entries[name], into)
	}
	if json.Unmarshal(entries["txt_endpoints"], &c.Endpoints) != nil {
		c.Endpoints = nil
	}
	return c, nil
}
