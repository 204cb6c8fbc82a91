package masked

// IsSecret reports whether a member of this name is taken for a secret.
func IsSecret(name string) bool { return isSecret(name) }
