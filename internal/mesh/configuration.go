package mesh

import (
	"database/sql"
	"slices"

	"meshddns/internal/dnsname"
	"meshddns/internal/provider"
	"meshddns/internal/secrets"
)

// SyncMode says what a synchronisation may change, and when it runs. Any other text means
// Manual.
type SyncMode string

const (
	Manual     SyncMode = "manual"
	Auto       SyncMode = "auto"
	UpsertOnly SyncMode = "upsert-only"
)

// SyncModes are the modes that a configuration can have.
var SyncModes = []SyncMode{Manual, Auto, UpsertOnly}

// Configuration is the DDNS configuration. A number is not valid where the client gave none.
type Configuration struct {
	Provider, AccessKeyID, Endpoint string
	Secret                          secrets.Secret
	Domain, TXTRecordName           string
	SyncMode                        SyncMode
	RetryInterval, MaxRetries       sql.Null[int64]
	Enabled                         bool
	Endpoints                       []string
	UpdatedAt                       string
	Zone                            string // Domain as DNS has it
	AccountID                       int64  // 0 when the configuration is not stored
}

// RecordName gives the name of the configuration's own record.
func (c Configuration) RecordName() string {
	if c.TXTRecordName == "@" {
		return dnsname.Parse(c.Domain)
	}
	return dnsname.Parse(c.TXTRecordName + "." + c.Domain)
}

// StoredName gives the record name of a configuration that is stored, "" for one that is not.
func (c Configuration) StoredName() string {
	if c.AccountID == 0 {
		return ""
	}
	return c.RecordName()
}

// Mode gives the mode that is in effect.
func (c Configuration) Mode() SyncMode {
	if slices.Contains(SyncModes, c.SyncMode) {
		return c.SyncMode
	}
	return Manual
}

// sameCredentials reports whether the secret of c, if there is one, belongs to the account and
// the address of d.
func (c Configuration) sameCredentials(d Configuration) bool {
	return c.Secret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID &&
		provider.NormalEndpoint(c.Provider, c.Endpoint) == provider.NormalEndpoint(d.Provider, d.Endpoint)
}

// Unmasked gives the configuration with the stored secret in the place of a mask. It fails (ok
// false) unless that secret belongs to the same credentials: otherwise the secret could be sent
// to the address of a stranger.
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

// SameAs reports whether the configuration is stored already as it is here.
func (c Configuration) SameAs(stored Configuration) bool {
	c, ok := c.Unmasked(stored)
	return ok && c.sameCredentials(stored) && c.Secret == stored.Secret && c.Endpoint == stored.Endpoint &&
		c.Domain == stored.Domain && c.TXTRecordName == stored.TXTRecordName && c.SyncMode == stored.SyncMode &&
		c.RetryInterval == stored.RetryInterval && c.MaxRetries == stored.MaxRetries &&
		c.Enabled == stored.Enabled && slices.Equal(c.Endpoints, stored.Endpoints)
}
