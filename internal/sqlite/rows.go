// Values that database/sql does not know, times, and statements that read or change many rows.

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// TextList is a list of strings, stored as a JSON array.
type TextList []string

// Value returns the stored form.
func (l TextList) Value() (driver.Value, error) {
	if l == nil {
		return "[]", nil
	}
	text, err := json.Marshal([]string(l))
	return string(text), err
}

// Scan reads the stored form. A text that is no JSON list, which this program never stores, counts as
// an empty list, so that one broken row does not hide the others.
func (l *TextList) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("list is stored as %T", value)
	}
	if *l = nil; text == "[]" {
		return nil
	}
	if json.Unmarshal([]byte(text), l) != nil {
		*l = nil
	}
	return nil
}

// Given returns the stored form of an optional value; nil is NULL.
func Given[T any](value *T) sql.Null[T] {
	if value == nil {
		return sql.Null[T]{}
	}
	return sql.Null[T]{V: *value, Valid: true}
}

// Pointer is the inverse of Given.
func Pointer[T any](stored sql.Null[T]) *T {
	if !stored.Valid {
		return nil
	}
	return &stored.V
}

// Stamp returns a time in the stored form that SQL compares: milliseconds since 1970, 0 for the zero
// time.
func Stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Stamped is the inverse of Stamp.
func Stamped(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// Shown returns a time in the stored form that answers show: RFC 3339 in UTC with milliseconds.
func Shown(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Scanner is a row of a result.
type Scanner interface{ Scan(...any) error }

// Queryer is implemented by a pool, a connection and a transaction.
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// One returns the single column of a query's first row, or sql.ErrNoRows.
func One[T any](ctx context.Context, q Queryer, query string, args ...any) (value T, err error) {
	err = q.QueryRowContext(ctx, query, args...).Scan(&value)
	return value, err
}

// Exec runs a statement and returns the number of rows that it changed.
func Exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (changed int64, err error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Collect returns the rows of a query. A query with a limit needs "LIMIT ? + 0", because SQLite
// compiles a statement with a bare "LIMIT ?" anew each time that the parameter is bound.
func Collect[T any](ctx context.Context, q Queryer, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// Pages returns the rows of successive queries. Each query returns at most size rows after the last
// row of the query before; the first query starts after a zero row. No query is open while the caller
// handles a row. After an error there are no more rows.
func Pages[T any](size int, page func(behind T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last, none T
		for more := true; more; {
			rows, err := page(last)
			if err != nil {
				yield(none, err)
				return
			}
			for _, last = range rows {
				if !yield(last, nil) {
					return
				}
			}
			more = len(rows) == size
		}
	}
}

// Made returns the value that of makes from each row, and skips rows for which ok is false.
func Made[T, U any](rows iter.Seq2[T, error], of func(T) (made U, ok bool)) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for row, err := range rows {
			if err != nil {
				yield(*new(U), err)
				return
			}
			if made, ok := of(row); ok && !yield(made, nil) {
				return
			}
		}
	}
}

// Text scans a row of one text.
func Text(row Scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// Absent returns missing in place of sql.ErrNoRows, and any other error unchanged.
func Absent(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}
