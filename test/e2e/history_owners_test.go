package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Who owns a name, in the words of the contract. In two of three histories tokens of services do some of the steps.

// roles are the lines of the token file: an administrator, and one for each service.
func roles() string {
	lines := []string{"admin boss " + bossToken}
	for _, id := range []string{"s1", "s2", "s3", "s4", "late"} {
		lines = append(lines, fmt.Sprintf("service:%s tenant-%s %s", id, id, tenantToken(id)))
	}
	return strings.Join(lines, "\n") + "\n"
}

const bossToken = "boss-0123456789abcdef"

func tenantToken(service string) string { return "tenant-0123456789-" + service }

// asBoss gives the administrator's token to requests that have none.
type asBoss struct{ http.RoundTripper }

func (b asBoss) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+bossToken)
	}
	return b.RoundTripper.RoundTrip(r)
}

// by has a tenant make a change of its service's usage, in some histories and sometimes.
func (w *history) by(service string, c mutation) (by mutation, tenant bool) {
	if !w.tenants || w.random.IntN(3) == 0 {
		return c, false
	}
	w.tally.add("changes by tenants", 1)
	c.header, c.tenant = []string{"Authorization", "Bearer " + tenantToken(service)}, service
	return c, true
}

// joins says that a usage shares a name with the one that has it.
func (u modelUsage) joins(holder modelUsage) bool {
	return u.network == holder.network && (u.service == holder.service || !u.tenant)
}

// holder gives the usage that has a name: the first one that has not found it taken, else the eldest. A tenant's does not take
// it from the configuration's record. It is -1 if none has it.
func (m model) holder(name string, group []modelUsage) int {
	holder := -1
	for i, u := range group {
		switch {
		case u.releasing:
		case !u.waits:
			return i
		case holder < 0 && !(u.tenant && name == m.config.name()):
			holder = i
		}
	}
	return holder
}

// group gives the usages of a name, the elder first.
func (m model) group(name string) (group []modelUsage) {
	for _, u := range m.usages {
		if m.name(u) == name {
			group = append(group, u)
		}
	}
	return group
}

// findsTaken says that a usage which is reserved now does not get its name.
func (m model) findsTaken(u modelUsage) bool {
	group := m.group(m.name(u))
	if at := m.holder(m.name(u), group); at >= 0 {
		return !u.joins(group[at])
	}
	return u.tenant && m.name(u) == m.config.name()
}

// settle has those that have a name by now wait no more.
func (m *model) settle() {
	m.usages = slices.Clone(m.usages)
	for i, u := range m.usages {
		group := m.group(m.name(u))
		at := m.holder(m.name(u), group)
		m.usages[i].waits = u.waits && (at < 0 || !u.joins(group[at]))
	}
}

// barred says that P of a tenant's usage is at or above the domain of another service, or of the configuration.
func (m model) barred(u modelUsage) bool {
	p := below(m.name(u))
	inner := within(m.config.domain, p)
	for _, v := range m.services {
		inner = inner || v.id != u.service && within(v.domain, p)
	}
	return u.tenant && inner
}

// denies says that the rule about owners keeps a record in another format from a usage.
func (m model) denies(u modelUsage, name string) bool {
	return m.barred(u) || u.tenant && name == m.config.name()
}

// denied says that a record is one that the rule about owners keeps from a tenant's usage.
func (w *history) denied(name string) bool {
	return slices.ContainsFunc(w.model.usages, func(u modelUsage) bool {
		p := below(w.model.name(u))
		return u.tenant && within(bare(name), p) && w.model.denies(u, name)
	})
}

// tellsOthers fails if a tenant is told an endpoint of another service.
func (w *history) tellsOthers(service, body string) {
	w.t.Helper()
	for _, u := range w.model.usages {
		own, leased := w.model.endpointsOf(u)
		if u.service == service {
			continue
		}
		for _, e := range slices.Concat(own, leased) {
			if strings.Contains(body, `"`+e.Text) || strings.Contains(body, " "+e.Text) {
				w.fail("a token of %s is told %s, which is %s's: %s", service, e.Text, u.service, body)
			}
		}
	}
}

// checkTenants asks with the tokens of the services for their usages.
func (w *history) checkTenants() {
	w.t.Helper()
	for _, u := range w.model.usages {
		if !w.tenants || !u.waits {
			continue
		}
		a, err := w.p.try("GET", usagesPath+"/"+u.id, "", "Authorization", "Bearer "+tenantToken(u.service))
		if err != nil || a.status != 200 && !u.releasing {
			w.fail("GET the usage %s by its tenant: %d %s %v", u.id, a.status, a.body, err)
		}
		if u.tenant {
			w.tellsOthers(u.service, a.body)
		}
		w.tally.add("usages that wait for a name", 1)
	}
}
