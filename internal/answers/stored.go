package answers

import (
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// Configuration is the configuration as clients see it, with its secret masked.
type Configuration struct {
	Provider        string   `json:"provider"`
	AccessKeyID     string   `json:"access_key_id"`
	AccessKeySecret string   `json:"access_key_secret"`
	Endpoint        string   `json:"endpoint"`
	Domain          string   `json:"domain"`
	TXTRecordName   string   `json:"txt_record_name"`
	TXTEndpoints    []string `json:"txt_endpoints"`
	SyncMode        string   `json:"sync_mode"`
	EffectiveMode   string   `json:"effective_sync_mode,omitempty"`
	RetryInterval   *int64   `json:"retry_interval"`
	MaxRetries      *int64   `json:"max_retries"`
	Enabled         bool     `json:"enabled"`
	UpdatedAt       string   `json:"updated_at,omitempty"`
}

// NewConfiguration makes the answer about a configuration.
func NewConfiguration(c mesh.Configuration) Configuration {
	secret := ""
	if c.Secret != "" {
		secret = secrets.Mask
	}
	return Configuration{
		Provider: c.Provider, AccessKeyID: c.AccessKeyID, AccessKeySecret: secret, Endpoint: c.Endpoint,
		Domain: c.Domain, TXTRecordName: c.TXTRecordName, TXTEndpoints: append([]string{}, c.Endpoints...),
		SyncMode: string(c.SyncMode), EffectiveMode: string(c.Mode()), RetryInterval: sqlite.Pointer(c.RetryInterval),
		MaxRetries: sqlite.Pointer(c.MaxRetries), Enabled: c.Enabled, UpdatedAt: c.UpdatedAt,
	}
}

// Service is a service as clients see it, with the secrets in its config masked.
type Service struct {
	mesh.ServiceMembers
	Config     string `json:"config"`
	UsageCount int    `json:"usage_count"`
	CreatedAt  string `json:"created_at"`
	UpdatedAt  string `json:"updated_at"`
}

// NewService makes the answer about a service.
func NewService(v mesh.Service) Service {
	return Service{
		ServiceMembers: v.ServiceMembers, Config: secrets.MaskMembers(string(v.Config)), UsageCount: v.UsageCount,
		CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
	}
}

// Provider is a provider and the meaning of its fields.
type Provider struct {
	Name            string `json:"name"`
	Title           string `json:"title"`
	AccessKeyID     string `json:"access_key_id"`
	AccessKeySecret string `json:"access_key_secret"`
	Endpoint        string `json:"endpoint"`
	MinTTL          uint32 `json:"min_ttl"` // seconds
}

// NewProvider returns a provider with its texts in a language.
func NewProvider(name string, minTTL uint32, language msg.Language) Provider {
	in := msg.ProviderIn(language, name)
	return Provider{
		Name: name, Title: in.Title, AccessKeyID: in.AccessKeyID, AccessKeySecret: in.AccessKeySecret, Endpoint: in.Endpoint, MinTTL: minTTL,
	}
}
