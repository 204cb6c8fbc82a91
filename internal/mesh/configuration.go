package mesh

import (
	"errors"
	"reflect"
	"slices"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
)

// SyncMode decides when synchronisation runs and which records it may change. An unknown text means
// Manual.
type SyncMode string

const (
	Manual     SyncMode = "manual"      // writes only for POST sync and for the release of a prefix
	Auto       SyncMode = "auto"        // also after a change, at the start, and in intervals
	UpsertOnly SyncMode = "upsert-only" // as Auto, but a released value stays
)

// SyncModes are all modes that a configuration can have.
var SyncModes = []SyncMode{Manual, Auto, UpsertOnly}

// Configuration is the DDNS configuration, with the members that requests, provisioning files, answers and events have.
// RetryInterval and MaxRetries are nil if the client did not set them.
type Configuration struct {
	Provider      string         `json:"provider"`
	AccessKeyID   string         `json:"access_key_id"`
	Secret        secrets.Secret `json:"access_key_secret"`
	Endpoint      string         `json:"endpoint"`
	Domain        string         `json:"domain"`
	TXTRecordName string         `json:"txt_record_name"`
	Endpoints     []string       `json:"txt_endpoints"`
	SyncMode      SyncMode       `json:"sync_mode"`
	EffectiveMode SyncMode       `json:"effective_sync_mode,omitempty" given:"never"` // Mode, in answers
	PausedText    string         `json:"paused,omitempty" given:"never"`              // Paused, in answers
	RetryInterval *int64         `json:"retry_interval"`                              // seconds
	MaxRetries    *int64         `json:"max_retries"`
	Enabled       bool           `json:"enabled"`
	UpdatedAt     string         `json:"updated_at,omitempty" given:"never"`

	Zone      string `json:"-"` // Domain in DNS form
	AccountID int64  `json:"-"` // 0 if the configuration is not stored
}

// Check checks a configuration in the order of the contract. The error joins all refusals.
func (c Configuration) Check() error {
	return errors.Join(
		msg.RefuseIf(c.Provider == "", msg.ProviderEmpty),
		msg.RefuseIf(c.AccessKeyID == "" || c.Secret == "", msg.AccessKeyEmpty),
		msg.RefuseIf(c.Domain == "", msg.DomainEmpty),
		msg.RefuseIf(c.TXTRecordName == "", msg.TXTRecordNameEmpty),
		Usage{Endpoints: c.Endpoints}.CheckEndpoints())
}

// RecordName returns the name of the configuration's own record.
func (c Configuration) RecordName() string {
	if c.TXTRecordName == "@" {
		return dns.Parse(c.Domain)
	}
	return dns.Parse(c.TXTRecordName + "." + c.Domain)
}

// StoredName returns RecordName for a stored configuration, and "" for any other.
func (c Configuration) StoredName() string {
	if c.AccountID == 0 {
		return ""
	}
	return c.RecordName()
}

// Mode returns the mode in effect.
func (c Configuration) Mode() SyncMode {
	if slices.Contains(SyncModes, c.SyncMode) {
		return c.SyncMode
	}
	return Manual
}

// Details of Paused, as a msg.Text is stored.
const (
	PausedOff    = "enabled is false in the configuration\n配置中 enabled 为 false"
	PausedManual = "POST /api/v1/ddns/sync publishes\nPOST /api/v1/ddns/sync 时才发布"
)

// Paused returns the reason why the program writes nothing by itself, the zero Fault if it does or if c is not stored.
func (c Configuration) Paused() Fault {
	switch {
	case c.Provider == "":
		return Fault{}
	case !c.Enabled:
		return Fault{Code: string(msg.Paused), Detail: PausedOff}
	case c.Mode() == Manual:
		return Fault{Code: string(msg.Paused), Detail: PausedManual}
	}
	return Fault{}
}

// sameCredentials reports whether c has a secret, and the provider, key and address of d.
func (c Configuration) sameCredentials(d Configuration) bool {
	return c.Secret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID &&
		provider.NormalEndpoint(c.Provider, c.Endpoint) == provider.NormalEndpoint(d.Provider, d.Endpoint)
}

// Masked reports whether the secret is the mask.
func (c Configuration) Masked() bool { return c.Secret == secrets.Mask }

// Unmasked returns the configuration with the stored secret in place of the mask. ok is false if the
// provider, key or address has changed: the stored secret could go to the address of an attacker.
func (c Configuration) Unmasked(stored Configuration) (_ Configuration, ok bool) {
	if !c.Masked() {
		return c, true
	}
	if !stored.sameCredentials(c) {
		return c, false
	}
	c.Secret = stored.Secret
	return c, true
}

// SameAs reports whether the configuration equals the stored one.
func (c Configuration) SameAs(stored Configuration) bool {
	c, ok := c.Unmasked(stored)
	return ok && c.Secret != "" && c.Secret == stored.Secret && reflect.DeepEqual(c.Listed(), stored.Listed())
}

// Listed returns the members that a client sets, with a list of endpoints even where it is empty.
func (c Configuration) Listed() Configuration {
	c.Endpoints = append([]string{}, c.Endpoints...)
	c.EffectiveMode, c.PausedText, c.UpdatedAt, c.Zone, c.AccountID = "", "", "", "", 0
	return c
}
