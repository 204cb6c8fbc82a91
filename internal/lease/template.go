package lease

import (
	"context"
	"net/netip"
	"slices"
	"strings"
)

// placeholder stands for an address in a template.
const placeholder = "{ip}"

// fill puts an address into an endpoint of a template.
func fill(text string, address netip.Addr) string {
	host := address.String()
	if address.Is6() {
		host = "[" + host + "]"
	}
	return strings.ReplaceAll(text, placeholder, host)
}

// Addressed returns the endpoints that the template makes of some addresses. Without a template it
// takes the endpoints of the usage that the lease permits, with their hosts replaced. The error is
// ErrNoTemplate if there are none.
func (t *Table) Addressed(ctx context.Context, l Lease, addresses []netip.Addr) (endpoints []string, err error) {
	template := l.Template
	if len(template) == 0 {
		if template, err = t.templateOf(ctx, l); err != nil {
			return nil, err
		}
	}
	if len(template) == 0 {
		return nil, ErrNoTemplate
	}
	for _, address := range addresses {
		for _, text := range template {
			endpoints = append(endpoints, fill(text, address))
		}
	}
	return endpoints, nil
}

// templateOf returns the endpoints of the lease's usage that the lease permits, with {ip} in place
// of their hosts.
func (t *Table) templateOf(ctx context.Context, l Lease) (template []string, err error) {
	state, err := t.config.Ledger.State(ctx, []string{l.Name})
	if err != nil {
		return nil, err
	}
	for _, u := range state.Names[0].Usages {
		if u.ID != l.UsageID {
			continue
		}
		for _, endpoint := range u.Endpoints {
			scheme, rest, _ := strings.Cut(endpoint, "://")
			port := rest[strings.LastIndexByte(rest, ':')+1:]
			if text := scheme + "://" + placeholder + ":" + port; l.permits(scheme) && !slices.Contains(template, text) {
				template = append(template, text)
			}
		}
	}
	return template, nil
}
