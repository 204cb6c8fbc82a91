package secrets

// IsSecretName reports whether a member of this name is taken for a secret.
func IsSecretName(name string) bool { return isSecret(name) }
