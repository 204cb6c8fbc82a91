// Package rights says which caller may do what. It knows no HTTP and no database.
package rights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// Caller is the sender of a request. The zero Caller has all rights: the program itself, and a client that needs no token.
type Caller struct {
	Token   string // as audit lines name it (`token 1`, `token "dashboard"`), "" without a token
	Role    string // as the token file has it, "" for all rights
	Service string // the only service that the caller may use, "" for any
}

const maxName = 32 // characters of a token's name

// Named returns the caller with a token that has a name and a role. Its errors have neither.
func Named(role, name string) (Caller, error) {
	service, one := strings.CutPrefix(role, "service:")
	switch {
	case role != "admin" && role != "read" && (!one || service == ""):
		return Caller{}, errors.New("a role is admin, read or service:<id>")
	case name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return Caller{}, fmt.Errorf("a name is 1 to %d characters of a-z, 0-9 and -", maxName)
	case !one:
		service = ""
	}
	return Caller{Token: fmt.Sprintf("token %q", name), Role: role, Service: service}, nil
}

type callerKey struct{}

// With returns a context whose reads and changes are a caller's.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Of returns the caller of a context.
func Of(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Admins is the rule of routes for callers with all rights. A rule says whether the caller of a context may use a route.
func Admins(ctx context.Context) bool { return Of(ctx).Role == "" || Of(ctx).Role == "admin" }

// Readers is the rule of routes for the role read, too.
func Readers(ctx context.Context) bool { return Admins(ctx) || Of(ctx).Role == "read" }

// Tenants is the rule of routes for the roles of a service, too. Narrow checks the service where it is read.
func Tenants(ctx context.Context) bool { return Admins(ctx) || Of(ctx).Service != "" }

// All is the rule of routes for each role.
func All(context.Context) bool { return true }

// Narrow returns the service that a request of the caller of a context is about: the caller's only one if the request
// names none. permitted is false if it names another one.
func Narrow(ctx context.Context, service string) (narrowed string, permitted bool) {
	only := Of(ctx).Service
	return cmp.Or(only, service), only == "" || service == "" || service == only
}
