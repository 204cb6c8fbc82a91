// Package promises holds the program to its promises: which values stand in DNS, at real
// servers, at stand-ins for clouds and in the zones of the built-in server, whatever fails; and
// what the database keeps and erases. It asks the HTTP API in the process, without a socket.
// Only tests import it.
package promises

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/hostaddr"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// Suite tests a program.
type Suite struct {
	// Open opens a database file, which it makes when it is not there.
	Open func(ctx context.Context, path string, o Options) (*Program, error)
}

// Options is what tests set in a program.
type Options struct {
	Addresses func() reconcile.Addresses
	Now       func() time.Time
	Committed func(wake func()) // is called after each commit, with the engine's function to call
	Log       *slog.Logger
}

// Program is a program on one database, without sockets: what tests ask, look into and renew.
type Program struct {
	Routes http.Handler // the HTTP API

	Path, Owner    string
	Addresses      mesh.Addresses // that were known when it was opened
	Reader, Writer *sql.DB
	Ledger         *ledger.Ledger
	Zones          *builtin.Table
	Subscribe      func(func(sqlite.Notice))

	// NewEngine makes the engine that requests use from then on; change changes its configuration.
	NewEngine func(book *hostaddr.Book, interval time.Duration, change func(*reconcile.Config)) *reconcile.Engine
	// Serve says where the built-in server listens, "" when it does not.
	Serve func(address string)
	// Reach says by what the world finds the built-in server.
	Reach func(named bool, book *hostaddr.Book)
	IDs   func(newID func() (string, error))
	// Keep cancels the release of a usage, as a provisioning file does.
	Keep          func(ctx context.Context, id string) error
	SaveAddresses func(ctx context.Context, a mesh.Addresses) error
	Settle        func() // waits until the database does nothing by itself
	Close         func() error
}

// Publishing runs the tests of what stands in DNS.
func (suite Suite) Publishing(t *testing.T) { run(t, publishing{suite}) }

// Database runs the tests of what the database keeps.
func (suite Suite) Database(t *testing.T) { run(t, database{suite}) }

type (
	publishing struct{ Suite }
	database   struct{ Suite }
)

// run runs the methods of a suite whose names begin with Test.
func run(t *testing.T, suite any) {
	methods := reflect.ValueOf(suite)
	for method, function := range methods.Methods() {
		if name, isTest := strings.CutPrefix(method.Name, "Test"); isTest {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				function.Call([]reflect.Value{reflect.ValueOf(t)})
			})
		}
	}
}
