// Package api holds the HTTP API to its promises: the scripts in testdata, and what is no
// single request and answer. It drives a program on loopback. Only tests import it.
package api

import (
	"context"
	"database/sql"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"meshddns/internal/reconcile"
	"meshddns/test/support"
)

// Suite tests a program.
type Suite struct {
	// Start starts the program on loopback, which ends with the test.
	Start func(t testing.TB, o Options) *Appliance

	Update   bool          // rewrite the answers in testdata
	SyncTime time.Duration // the longest that a synchronisation takes

	ServicePage, LeftoverPage int // how many are read at a time to list all
}

// Options is what is to be otherwise than in the program.
type Options struct {
	Path     string           // of the database; "" for a new one
	Stopped  bool             // the clock stands: nothing happens by itself
	Now      func() time.Time // the clock, if it is given
	NoServer bool             // the built-in DNS server is not known to run
	Idle     bool             // the reconciler does not run, so only requests change the database
	IPv4     string           // where the public address is from; "" for 203.0.113.7
}

// Appliance is a program that runs.
type Appliance struct {
	Path  string // of the database
	Owner string
	URL   string
	DNS   string // address of the built-in DNS server
	Logs  *support.Log
	HTTP  *http.Client

	Public *reconcile.Public // how the test of a connection sees the world
	Reader *sql.DB           // of the program
	Settle func()            // waits until the database does nothing by itself
	Reload func()            // reads the built-in zones again, which another program has changed

	// Provision applies the provisioning files at a path, with the secrets in a folder.
	Provision func(ctx context.Context, path, credentials string) error
	Faults    func() []string // of what is provisioned
}

// Test runs all tests.
func (suite Suite) Test(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](suite, t)
		})
	}
}

var tests = map[string]func(Suite, *testing.T){
	"PartAIsWhole":                  Suite.testPartAIsWhole,
	"OnePrefixIsGivenOnce":          Suite.testOnePrefixIsGivenOnce,
	"NetworkIDIsExact":              Suite.testNetworkIDIsExact,
	"RefusedRequestsChangeNothing":  Suite.testRefusedRequestsChangeNothing,
	"BodyLimit":                     Suite.testBodyLimit,
	"ManyServices":                  Suite.testManyServices,
	"PagesAreTheStream":             Suite.testPagesAreTheStream,
	"SlowReaderHoldsNobodyUp":       Suite.testSlowReaderHoldsNobodyUp,
	"ListingBrokenOff":              Suite.testListingBrokenOff,
	"ChangesOfOneUsageAtOnce":       Suite.testChangesOfOneUsageAtOnce,
	"PrefixIsTakenByAnyUsage":       Suite.testPrefixIsTakenByAnyUsage,
	"ReleaseOfTheNewestUsage":       Suite.testReleaseOfTheNewestUsage,
	"LeftoversAreStreamed":          Suite.testLeftoversAreStreamed,
	"DomainOfAnotherScript":         Suite.testDomainOfAnotherScript,
	"UnreadableRowsAreListed":       Suite.testUnreadableRowsAreListed,
	"CloudConnectionTest":           Suite.testCloudConnectionTest,
	"PublicDNS":                     Suite.testPublicDNS,
	"BuiltinWithoutServer":          Suite.testBuiltinWithoutServer,
	"SecretsStayInside":             Suite.testSecretsStayInside,
	"CloudSecretsStayInside":        Suite.testCloudSecretsStayInside,
	"AuditLines":                    Suite.testAuditLines,
	"EndpointSpellings":             Suite.testEndpointSpellings,
	"Metrics":                       Suite.testMetrics,
	"MetricsOfZones":                Suite.testMetricsOfZones,
	"MetricsFromTheStart":           Suite.testMetricsFromTheStart,
	"Contract":                      Suite.testContract,
	"Page":                          Suite.testPage,
	"PageFinds":                     Suite.testPageFinds,
	"PageOfAName":                   Suite.testPageOfAName,
	"PageOfAFault":                  Suite.testPageOfAFault,
	"LastSuccessOutlivesTheProgram": Suite.testLastSuccessOutlivesTheProgram,
	"Backup":                        Suite.testBackup,
	"OneBackupAtATime":              Suite.testOneBackupAtATime,
	"BackupHasNoRanges":             Suite.testBackupHasNoRanges,
	"HeadOfBackup":                  Suite.testHeadOfBackup,
	"ValueWithoutConfiguration":     Suite.testValueWithoutConfiguration,
	"BuiltinZonesBesideEachOther":   Suite.testBuiltinZonesBesideEachOther,
	"BuiltinZoneCuts":               Suite.testBuiltinZoneCuts,
	"SyncSaysThatTheDatabaseFails":  Suite.testSyncSaysThatTheDatabaseFails,
	"OutcomeThatIsNotStored":        Suite.testOutcomeThatIsNotStored,
	"NextPass":                      Suite.testNextPass,
	"ReportCountsANameOnce":         Suite.testReportCountsANameOnce,
	"NowhereWithLeftover":           Suite.testNowhereWithLeftover,
	"FileIsGone":                    Suite.testFileIsGone,
	"LockedByAnother":               Suite.testLockedByAnother,
	"ChineseAnswers":                Suite.testChineseAnswers,
	"ChineseFaults":                 Suite.testChineseFaults,
	"PrivateAddressIsTold":          Suite.testPrivateAddressIsTold,
	"Wait":                          Suite.testWait,
	"WaitEnds":                      Suite.testWaitEnds,
	"IdempotencyKey":                Suite.testIdempotencyKey,
	"Provision":                     Suite.testProvision,
	"ProvisionFaults":               Suite.testProvisionFaults,
	"StateIsADocument":              Suite.testStateIsADocument,
	"ProvisionKeepsWhatIsReleased":  Suite.testProvisionKeepsWhatIsReleased,
}
