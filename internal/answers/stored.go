package answers

import (
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// NewConfiguration returns a configuration as clients see it. Its type masks the secret.
func NewConfiguration(c mesh.Configuration, language msg.Language) mesh.Configuration {
	shown := c.Listed()
	shown.EffectiveMode, shown.PausedText, shown.UpdatedAt = c.Mode(), c.Paused().In(language), c.UpdatedAt
	return shown
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
		ServiceMembers: v.ServiceMembers, Config: v.MaskedConfig(), UsageCount: v.UsageCount,
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
