package mesh

import (
	"database/sql"
	"slices"

	"meshddns/internal/dns"
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

// Configuration is the DDNS configuration. RetryInterval and MaxRetries are NULL if the client did not
// set them.
type Configuration struct {
	Provider, AccessKeyID, Endpoint string
	Secret                          secrets.Secret
	Domain, TXTRecordName           string
	SyncMode                        SyncMode
	RetryInterval, MaxRetries       sql.Null[int64]
	Enabled                         bool
	Endpoints                       []string
	UpdatedAt                       string
	Zone                            string // Domain in DNS form
	AccountID                       int64  // 0 if the configuration is not stored
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

// sameCredentials reports whether c has a secret, and the provider, key and address of d.
func (c Configuration) sameCredentials(d Configuration) bool {
	return c.Secret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID &&
		provider.NormalEndpoint(c.Provider, c.Endpoint) == provider.NormalEndpoint(d.Provider, d.Endpoint)
}

// Unmasked returns the configuration with the stored secret in place of the mask. ok is false if the
// provider, key or address has changed: the stored secret could go to the address of an attacker.
func (c Configuration) Unmasked(stored Configuration) (_ Configuration, ok bool) {
	if c.Secret != secrets.Mask {
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
	return ok && c.sameCredentials(stored) && c.Secret == stored.Secret && c.Endpoint == stored.Endpoint &&
		c.Domain == stored.Domain && c.TXTRecordName == stored.TXTRecordName && c.SyncMode == stored.SyncMode &&
		c.RetryInterval == stored.RetryInterval && c.MaxRetries == stored.MaxRetries &&
		c.Enabled == stored.Enabled && slices.Equal(c.Endpoints, stored.Endpoints)
}
