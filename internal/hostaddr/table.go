package hostaddr

import (
	"context"
	"database/sql"
	"net/netip"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

// Stored returns the addresses that Store stored last.
func Stored(ctx context.Context, q sqlite.Queryer) (a mesh.Addresses, err error) {
	type row struct {
		source string
		mesh.Pair
	}
	var ipv4, ipv6 string
	if err := q.QueryRowContext(ctx, `SELECT ipv4, ipv6 FROM appliance`).Scan(&ipv4, &ipv6); err != nil {
		return a, err
	}
	own := parsePair(ipv4, ipv6)
	a.IPv4, a.IPv6 = own.IPv4, own.IPv6
	rows, err := sqlite.Collect(ctx, q, func(s sqlite.Scanner) (r row, err error) {
		err = s.Scan(&r.source, &ipv4, &ipv6)
		r.Pair = parsePair(ipv4, ipv6)
		return r, err
	}, `SELECT source, ipv4, ipv6 FROM addresses`)
	for _, r := range rows {
		if a.Named == nil {
			a.Named = map[string]mesh.Pair{}
		}
		a.Named[r.source] = r.Pair
	}
	return a, err
}

// parsePair parses stored addresses; "" is none.
func parsePair(ipv4, ipv6 string) (p mesh.Pair) {
	p.IPv4, _ = netip.ParseAddr(ipv4)
	p.IPv6, _ = netip.ParseAddr(ipv6)
	return p
}

// Store replaces the stored addresses. A named source without an address has no row.
func Store(ctx context.Context, tx *sql.Tx, a mesh.Addresses) error {
	text := func(a netip.Addr) string {
		b, _ := a.MarshalText() // "" for none
		return string(b)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE appliance SET ipv4 = ?, ipv6 = ? WHERE id = 1`, text(a.IPv4), text(a.IPv6)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM addresses`); err != nil {
		return err
	}
	for name, p := range a.Named {
		if p == (mesh.Pair{}) {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO addresses (source, ipv4, ipv6) VALUES (?, ?, ?)`, name, text(p.IPv4), text(p.IPv6)); err != nil {
			return err
		}
	}
	return nil
}
