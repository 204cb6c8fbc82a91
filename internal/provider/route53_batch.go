package provider

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
)

// This file reads and changes many names of a zone at Route 53.

// route53Order returns the sort key of a name in the vendor's lists: its labels from last to first, each
// with a dot after it.
func route53Order(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// route53Page is a page of sets, and the beginning of the next page.
type route53Page struct {
	XMLName     xml.Name     `xml:"ListResourceRecordSetsResponse"`
	Sets        []route53Set `xml:"ResourceRecordSets>ResourceRecordSet"`
	IsTruncated bool
	NextName    string `xml:"NextRecordName"`
	NextType    string `xml:"NextRecordType"`
	NextID      string `xml:"NextRecordIdentifier"`
}

// query returns the query for the next page.
func (p route53Page) query() url.Values {
	query := url.Values{"name": {p.NextName}, "type": {p.NextType}}
	if p.NextID != "" {
		query.Set("identifier", p.NextID)
	}
	return query
}

func (v *route53) page(ctx context.Context, z zone, query url.Values) (page route53Page, err error) {
	c := call{name: "ListResourceRecordSets", method: http.MethodGet, path: route53Sets(z), query: query}
	if err = v.do(ctx, c, &page); err == nil && page.IsTruncated && len(page.Sets) == 0 {
		err = v.api.lacks(c, "record sets")
	}
	return page, err
}

func (v *route53) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return v.pages(ctx, z, sets, url.Values{}, route53Page.query)
}

// listNames reads the list from one wanted name to the next: a page also has the names close to it.
func (v *route53) listNames(ctx context.Context, z zone, names []string, sets *zoneSets) error {
	names = slices.Clone(names)
	sort.SliceStable(names, func(i, j int) bool { return route53Order(names[i]) < route53Order(names[j]) })
	from := func(name string) url.Values { return url.Values{"name": {name + "."}} }
	return v.pages(ctx, z, sets, from(names[0]), func(page route53Page) url.Values {
		next := route53Order(route53Name(page.NextName))
		names = slices.DeleteFunc(names, func(name string) bool { return route53Order(name) < next })
		switch {
		case len(names) == 0:
			return nil
		case route53Order(names[0]) == next:
			return page.query()
		}
		return from(names[0])
	})
}

// pages reads pages of sets, of which a repeated one counts once. next returns the query for the page after
// another one, nil if no more is wanted.
func (v *route53) pages(ctx context.Context, z zone, sets *zoneSets, query url.Values, next func(route53Page) url.Values) error {
	seen := newMarks()
	for range maxPages {
		query.Set("maxitems", route53SetsPage)
		page, err := v.page(ctx, z, query)
		if err != nil {
			return err
		}
		for _, s := range page.Sets {
			name, alias := route53Name(s.Name), s.Type == "CNAME"
			switch {
			case !alias && !sets.has(s.Type) || seen.again([3]string{name, s.Type, s.SetIdentifier}):
			case alias:
				sets.alias(name, s.target())
			default:
				sets.join(setKey{name, Type(s.Type)}, s.addTo)
			}
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextName == "" {
			return &Error{Kind: BadAnswer, Detail: msg.Say("the list of record sets does not end")}
		}
		if query = next(page); query == nil {
			return nil
		}
	}
	return manyPages(BadAnswer, maxPages)
}

// replace deletes the old set exactly as it was read and creates the new one, in one atomic batch.
func (v *route53) replace(ctx context.Context, z zone, at setKey, from, to recordSet) error {
	id, err := v.submit(ctx, z, route53Steps(at, from, to))
	if err != nil {
		return err
	}
	v.inSync(ctx, id)
	return nil
}

// route53Steps returns the steps from one set of a name and type to another.
func route53Steps(at setKey, from, to recordSet) (steps []route53Change) {
	if len(from.records) > 0 {
		steps = append(steps, route53Change{"DELETE", from.route53(at)})
	}
	if len(to.records) > 0 {
		steps = append(steps, route53Change{"CREATE", to.route53(at)})
	}
	return steps
}

// applyAll changes the sets of many names in atomic batches.
func (v *route53) applyAll(ctx context.Context, z zone, plans []plan) ([]error, bool) {
	var ids []string
	errs := inBatches(ctx, plans, route53Fit, func(batch []plan) error {
		var steps []route53Change
		for _, p := range batch {
			steps = append(steps, route53Steps(p.at, p.seen, p.after())...)
		}
		id, err := v.submit(ctx, z, steps)
		if err == nil {
			ids = append(ids, id)
		}
		return err
	})
	v.inSync(ctx, ids...)
	return errs, true
}

// route53Fit returns the number of plans that fit into one batch.
func route53Fit(plans []plan) int {
	elements, characters := 0, 0
	for i, p := range plans {
		for _, set := range []recordSet{p.seen, p.after()} {
			for _, r := range set.records {
				elements++
				characters += len(cmp.Or(r.raw, p.at.kind.spell(r.value, route53Odd)))
			}
		}
		if elements > route53Elements || characters > route53Characters {
			return i
		}
	}
	return len(plans)
}

func (s recordSet) route53(at setKey) route53Set {
	set := route53Set{Name: at.name + ".", Type: string(at.kind), TTL: s.ttl}
	for _, r := range s.records {
		set.Records = append(set.Records, route53Record{cmp.Or(r.raw, at.kind.spell(r.value, route53Odd))})
	}
	return set
}

// submit sends a batch and returns the id of the change.
func (v *route53) submit(ctx context.Context, z zone, batch []route53Change) (id string, err error) {
	c := call{name: "ChangeResourceRecordSets", method: http.MethodPost, path: route53Sets(z)}
	c.body, err = xml.Marshal(struct {
		XMLName xml.Name        `xml:"https://route53.amazonaws.com/doc/2013-04-01/ ChangeResourceRecordSetsRequest"`
		Changes []route53Change `xml:"ChangeBatch>Changes>Change"`
	}{Changes: batch})
	if err != nil {
		return "", &Error{Kind: Invalid, Detail: msg.Say(c.name), Err: err}
	}
	var answer struct {
		XMLName xml.Name `xml:"ChangeResourceRecordSetsResponse"`
		ID      string   `xml:"ChangeInfo>Id"`
	}
	if err := v.do(ctx, c, &answer); err != nil {
		return "", err
	}
	if answer.ID == "" {
		return "", v.api.lacks(c, "id of the change")
	}
	return strings.TrimPrefix(answer.ID, "/change/"), nil
}

// inSync waits until all of the vendor's servers have some changes, which can take a minute. The changes are
// already made and readable, so a timeout or a failed look is no error. It leaves time to confirm them.
func (v *route53) inSync(ctx context.Context, ids ...string) {
	patience := v.patience
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)-WriteTime/4)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, id := range ids {
		poll(ctx, daemon.Backoff{First: v.poll, Longest: route53LongestPoll}, func() bool {
			var answer struct {
				XMLName xml.Name `xml:"GetChangeResponse"`
				Status  string   `xml:"ChangeInfo>Status"`
			}
			err := v.do(ctx, call{name: "GetChange", method: http.MethodGet, path: "/change/" + escape(id)}, &answer)
			e, failed := errors.AsType[*Error](err)
			return answer.Status == "INSYNC" || failed && !e.Transient()
		})
	}
}
