package provider

import (
	"context"
	"slices"
)

// This file has the common code of vendors whose lists have single records.

// oldEntry is one record of a list.
type oldEntry struct {
	record
	name string // full and folded
	kind string // the type, such as TXT
	text string // the vendor's spelling of the value
}

// entryVendor is a vendor that lists the records of one type at a time.
type entryVendor interface {
	// entries returns a page of the records of a type, at a name or, if name is "", in the whole
	// zone. The page may have other records too. A CNAME that excludes no TXT record is off.
	entries(ctx context.Context, z zone, name, kind string) pageOf[oldEntry]
}

// entriesAt returns the records of a type at exactly this name.
func entriesAt(ctx context.Context, v entryVendor, z zone, name, kind string) ([]oldEntry, error) {
	entries, err := paged(v.entries(ctx, z, name, kind))
	return slices.DeleteFunc(entries, func(e oldEntry) bool { return e.kind != kind || e.name != name }), err
}

// listEntries implements list for an entryVendor.
func listEntries(ctx context.Context, v entryVendor, z zone, at setKey) (set recordSet, err error) {
	entries, err := entriesAt(ctx, v, z, at.name, string(at.kind))
	for _, e := range entries {
		set.records = append(set.records, e.record)
	}
	return set, err
}

// aliasEntry implements alias for an entryVendor.
func aliasEntry(ctx context.Context, v entryVendor, z zone, name string) (string, error) {
	entries, err := entriesAt(ctx, v, z, name, "CNAME")
	for _, e := range entries {
		if !e.off {
			return e.text, nil
		}
	}
	return "", err
}

// listZoneEntries implements listZone for an entryVendor.
func listZoneEntries(ctx context.Context, v entryVendor, z zone, sets *zoneSets) error {
	for _, kind := range sets.kinds() {
		if err := wholePages(oldEntry.key, v.entries(ctx, z, "", kind), sets.entry); err != nil {
			return err
		}
	}
	return nil
}

// kinds returns the types of records to list: those of the sets, and the aliases.
func (s *zoneSets) kinds() (kinds []string) {
	for _, t := range s.types {
		kinds = append(kinds, string(t))
	}
	return append(kinds, "CNAME")
}

// key identifies a record in a list.
func (e oldEntry) key() string { return e.id }

// entry adds a record of the sets' types or an alias to its name. It ignores all other records.
func (s *zoneSets) entry(e oldEntry) {
	switch {
	case s.has(e.kind):
		s.add(setKey{e.name, Type(e.kind)}, e.record)
	case e.kind == "CNAME" && !e.off:
		s.alias(e.name, e.text)
	}
}
