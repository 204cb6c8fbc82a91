// Package promises holds the program to its promises: which values stand in DNS, at real
// servers, at stand-ins for clouds and in the zones of the built-in server, whatever fails; and
// what the database keeps and erases. It drives the program's operations, its ledger and its
// reconciler without the HTTP API. Only tests import it.
package promises

import (
	"context"
	"database/sql"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/hostaddr"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// Suite tests a program.
type Suite struct {
	// Open opens a database file, which it makes when it is not there.
	Open func(ctx context.Context, path string, addresses func() reconcile.Addresses, log *slog.Logger) (Program, error)

	// What the operations report.
	NoConfiguration, NoService, NoUsage, PrefixTaken error
}

// Program is the operations of the program on one database.
type Program interface {
	Database() Database

	Configuration(ctx context.Context) (Configuration, error)
	Configure(ctx context.Context, c Configuration) error
	Forget(ctx context.Context) (gone bool, err error)
	PutService(ctx context.Context, id, config string) error
	DeleteService(ctx context.Context, id string) error
	Reserve(ctx context.Context, u Usage) (Usage, error)
	Usage(ctx context.Context, id string) (Usage, error)
	// Usages gives those whose record is in a state, "" for all.
	Usages(ctx context.Context, state reconcile.PlaceState) ([]Usage, error)
	Publish(ctx context.Context, id string, endpoints []string) error
	Format(ctx context.Context, id string, formats []string) error
	Keep(ctx context.Context, id string) error
	// Release waits for the engine, as a client's call does. Free does not.
	Release(ctx context.Context, id string) (freed bool, err error)
	Free(ctx context.Context, id string, force bool) (freed bool, err error)

	Totals(ctx context.Context) (map[string]uint64, error)
	SaveAddresses(ctx context.Context, a mesh.Addresses) error
	Backup(ctx context.Context) (*os.File, error)
	Client(a reconcile.Account) (provider.DNS, error)
	// Test is the test of a connection.
	Test(ctx context.Context, c Configuration, write bool) []answers.TestItem

	// NewEngine makes an engine that every commit wakes; change changes its configuration.
	NewEngine(book *hostaddr.Book, interval time.Duration, change func(*reconcile.Config)) *reconcile.Engine
	// Serve says where the built-in server listens, "" when it does not.
	Serve(address string)
	// Reach says by what the world finds the built-in server.
	Reach(named bool, book *hostaddr.Book)
	Clock(now func() time.Time)
	IDs(newID func() (string, error))
	// OnCommit has f called after each commit, in the place of wake.
	OnCommit(f func(wake func()))
	// LookThrough looks at the whole file, as a start does.
	LookThrough(ctx context.Context)
	// Settle waits until the database does nothing by itself.
	Settle()
	Close() error
}

// Database is the program's.
type Database struct {
	Path, Owner    string
	Addresses      mesh.Addresses // that were known when it was opened
	Reader, Writer *sql.DB
	Ledger         *ledger.Ledger
	Zones          *builtin.Table
	Subscribe      func(func(sqlite.Notice))
}

// Configuration is the program's. A number is nil where it is not given.
type Configuration struct {
	Provider, AccessKeyID, Endpoint string
	Secret                          secrets.Secret
	Domain, TXTRecordName, SyncMode string
	RetryInterval, MaxRetries       *int64
	Enabled                         bool
	Endpoints                       []string
}

// Usage is a prefix that is reserved for a network, and how far its record is.
type Usage struct {
	Seq                   int64
	ID, ServiceID, Prefix string
	Network               uint64
	Name                  string // full record name as DNS has it
	Status                string
	State                 reconcile.PlaceState
	Value                 string
	Fault                 reconcile.Fault
}

// Publishing runs the tests of what stands in DNS.
func (suite Suite) Publishing(t *testing.T) { suite.run(t, publishing) }

// Database runs the tests of what the database keeps.
func (suite Suite) Database(t *testing.T) { suite.run(t, database) }

func (suite Suite) run(t *testing.T, tests map[string]func(Suite, *testing.T)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](suite, t)
		})
	}
}

var publishing = map[string]func(Suite, *testing.T){
	"Wanted":                          Suite.testWanted,
	"Lifecycle":                       Suite.testLifecycle,
	"ForeignValues":                   Suite.testForeignValues,
	"Apex":                            Suite.testApex,
	"Unchanged":                       Suite.testUnchanged,
	"Preview":                         Suite.testPreview,
	"Conflicts":                       Suite.testConflicts,
	"StrangerComes":                   Suite.testStrangerComes,
	"SiblingComesBack":                Suite.testSiblingComesBack,
	"EqualForeignValue":               Suite.testEqualForeignValue,
	"TwoKeysOfSiblings":               Suite.testTwoKeysOfSiblings,
	"RecordsMoveAlone":                Suite.testRecordsMoveAlone,
	"YoungerWaitsForZone":             Suite.testYoungerWaitsForZone,
	"BuiltinIsLeft":                   Suite.testBuiltinIsLeft,
	"OwnRecordBeside":                 Suite.testOwnRecordBeside,
	"RaceOfSiblings":                  Suite.testRaceOfSiblings,
	"TwoAppliances":                   Suite.testTwoAppliances,
	"ManyWriters":                     Suite.testManyWriters,
	"BuiltinNotListening":             Suite.testBuiltinNotListening,
	"Failures":                        Suite.testFailures,
	"Silent":                          Suite.testSilent,
	"DownOnce":                        Suite.testDownOnce,
	"LostAnswer":                      Suite.testLostAnswer,
	"Restart":                         Suite.testRestart,
	"StopDuringWrite":                 Suite.testStopDuringWrite,
	"StopBeforeWrite":                 Suite.testStopBeforeWrite,
	"RecordMoves":                     Suite.testRecordMoves,
	"ServiceGone":                     Suite.testServiceGone,
	"ProviderMoves":                   Suite.testProviderMoves,
	"ZoneRemoved":                     Suite.testZoneRemoved,
	"NestedBuiltinZones":              Suite.testNestedBuiltinZones,
	"BuiltinSwitchedOff":              Suite.testBuiltinSwitchedOff,
	"ReleaseWhileDown":                Suite.testReleaseWhileDown,
	"ReleaseShared":                   Suite.testReleaseShared,
	"ReleaseHandsOver":                Suite.testReleaseHandsOver,
	"HandOverFails":                   Suite.testHandOverFails,
	"ReleaseToOtherProvider":          Suite.testReleaseToOtherProvider,
	"ReleaseSharedConflict":           Suite.testReleaseSharedConflict,
	"ReleaseTwice":                    Suite.testReleaseTwice,
	"ReleaserGoes":                    Suite.testReleaserGoes,
	"ForceFreed":                      Suite.testForceFreed,
	"ReleaseBesideAlias":              Suite.testReleaseBesideAlias,
	"ReleaseBesideCloudAlias":         Suite.testReleaseBesideCloudAlias,
	"CloudWithoutList":                Suite.testCloudWithoutList,
	"CloudOff":                        Suite.testCloudOff,
	"TwoZonesOfOneAccount":            Suite.testTwoZonesOfOneAccount,
	"NestedZones":                     Suite.testNestedZones,
	"UnreadBatch":                     Suite.testUnreadBatch,
	"ReleaseWaits":                    Suite.testReleaseWaits,
	"ReleaseUnpublished":              Suite.testReleaseUnpublished,
	"Forgets":                         Suite.testForgets,
	"UpsertOnly":                      Suite.testUpsertOnly,
	"ReservedAgain":                   Suite.testReservedAgain,
	"LeftoverInDoubt":                 Suite.testLeftoverInDoubt,
	"Leftovers":                       Suite.testLeftovers,
	"ZoneGivenUp":                     Suite.testZoneGivenUp,
	"TwoKeys":                         Suite.testTwoKeys,
	"KeyRotates":                      Suite.testKeyRotates,
	"KeepsWorkingKey":                 Suite.testKeepsWorkingKey,
	"KeepsKeys":                       Suite.testKeepsKeys,
	"TwoAccountsOfOneVendor":          Suite.testTwoAccountsOfOneVendor,
	"TokensOfOneID":                   Suite.testTokensOfOneID,
	"WrongSecret":                     Suite.testWrongSecret,
	"SecretRotates":                   Suite.testSecretRotates,
	"SecretOfWithdrawal":              Suite.testSecretOfWithdrawal,
	"ConfigurationForgotten":          Suite.testConfigurationForgotten,
	"Probe":                           Suite.testProbe,
	"ProbeEnds":                       Suite.testProbeEnds,
	"Test":                            Suite.testTest,
	"WriteTest":                       Suite.testWriteTest,
	"WriteTestCleansUp":               Suite.testWriteTestCleansUp,
	"WriteTestSees":                   Suite.testWriteTestSees,
	"AddressSourceIsDown":             Suite.testAddressSourceIsDown,
	"ZoneThatNobodyReaches":           Suite.testZoneThatNobodyReaches,
	"NewAddress":                      Suite.testNewAddress,
	"Loop":                            Suite.testLoop,
	"ChangesGoAtOnce":                 Suite.testChangesGoAtOnce,
	"ModeChanges":                     Suite.testModeChanges,
	"LoopGoesOn":                      Suite.testLoopGoesOn,
	"DatabaseFails":                   Suite.testDatabaseFails,
	"NotBegun":                        Suite.testNotBegun,
	"Join":                            Suite.testJoin,
	"JoinChange":                      Suite.testJoinChange,
	"JoinSearch":                      Suite.testJoinSearch,
	"JoinAfterChange":                 Suite.testJoinAfterChange,
	"Retries":                         Suite.testRetries,
	"ListedBeforeFault":               Suite.testListedBeforeFault,
	"RetryIsRemembered":               Suite.testRetryIsRemembered,
	"ReportWaits":                     Suite.testReportWaits,
	"SweepJoins":                      Suite.testSweepJoins,
	"OrphansWait":                     Suite.testOrphansWait,
	"RunIdle":                         Suite.testRunIdle,
	"RunStopped":                      Suite.testRunStopped,
	"Throttled":                       Suite.testThrottled,
	"Audit":                           Suite.testAudit,
	"PassIsCut":                       Suite.testPassIsCut,
	"DeadlineIsNoFailure":             Suite.testDeadlineIsNoFailure,
	"LogTellsOfChanges":               Suite.testLogTellsOfChanges,
	"LateWrite":                       Suite.testLateWrite,
	"LateUpdate":                      Suite.testLateUpdate,
	"StaleList":                       Suite.testStaleList,
	"SecondLook":                      Suite.testSecondLook,
	"ManualLookTakesNothingAway":      Suite.testManualLookTakesNothingAway,
	"LateOverNewer":                   Suite.testLateOverNewer,
	"StateIsTrue":                     Suite.testStateIsTrue,
	"IntentIsCompared":                Suite.testIntentIsCompared,
	"Repairs":                         Suite.testRepairs,
	"Copies":                          Suite.testCopies,
	"RestoredBackup":                  Suite.testRestoredBackup,
	"Adopts":                          Suite.testAdopts,
	"CopiedDatabase":                  Suite.testCopiedDatabase,
	"ZoneMadeAnew":                    Suite.testZoneMadeAnew,
	"MovesWithoutGap":                 Suite.testMovesWithoutGap,
	"MovesToChildZone":                Suite.testMovesToChildZone,
	"ConfigurationReplacedDuringPass": Suite.testConfigurationReplacedDuringPass,
	"TwoProvidersOfOneDomain":         Suite.testTwoProvidersOfOneDomain,
	"Elder":                           Suite.testElder,
	"CrashedRecord":                   Suite.testCrashedRecord,
	"ConfigurationTakesNoName":        Suite.testConfigurationTakesNoName,
	"OneZoneTwoAddresses":             Suite.testOneZoneTwoAddresses,
	"TwoZonesOfOneName":               Suite.testTwoZonesOfOneName,
	"DoubtMovesAway":                  Suite.testDoubtMovesAway,
	"PreviewOfMoves":                  Suite.testPreviewOfMoves,
	"PreviewOfSweep":                  Suite.testPreviewOfSweep,
	"BuiltinAnswers":                  Suite.testBuiltinAnswers,
	"BuiltinContract":                 Suite.testBuiltinContract,
	"BuiltinTypes":                    Suite.testBuiltinTypes,
	"BuiltinEmptyZone":                Suite.testBuiltinEmptyZone,
	"BuiltinChanged":                  Suite.testBuiltinChanged,
	"Serials":                         Suite.testSerials,
	"SerialAfterTheLast":              Suite.testSerialAfterTheLast,
	"NoWildcard":                      Suite.testNoWildcard,
	"ToldIsTrue":                      Suite.testToldIsTrue,
	"Siblings":                        Suite.testSiblings,
	"ForeignSiblings":                 Suite.testForeignSiblings,
	"SiblingsOfKeys":                  Suite.testSiblingsOfKeys,
	"SiblingsAdopted":                 Suite.testSiblingsAdopted,
	"SiblingHistories":                Suite.testSiblingHistories,
}

var database = map[string]func(Suite, *testing.T){
	"OpenAgain":                 Suite.testOpenAgain,
	"NewerSchemaIsRefused":      Suite.testNewerSchemaIsRefused,
	"OlderSchemaIsRefused":      Suite.testOlderSchemaIsRefused,
	"FileMode":                  Suite.testFileMode,
	"FileModeOfLeftLog":         Suite.testFileModeOfLeftLog,
	"OddFileNames":              Suite.testOddFileNames,
	"LeftBackupsOfOthers":       Suite.testLeftBackupsOfOthers,
	"OpenFails":                 Suite.testOpenFails,
	"LeftBackupsAreRemoved":     Suite.testLeftBackupsAreRemoved,
	"SecondProgramIsRefused":    Suite.testSecondProgramIsRefused,
	"BackupOfOneMoment":         Suite.testBackupOfOneMoment,
	"ForeignDatabase":           Suite.testForeignDatabase,
	"ForeignLog":                Suite.testForeignLog,
	"NewDatabaseIsTold":         Suite.testNewDatabaseIsTold,
	"FileComesBack":             Suite.testFileComesBack,
	"IndexBeatsTheRace":         Suite.testIndexBeatsTheRace,
	"ReservationsOnFullDisk":    Suite.testReservationsOnFullDisk,
	"SchemaRefuses":             Suite.testSchemaRefuses,
	"TotalsAreCounts":           Suite.testTotalsAreCounts,
	"KeysOfAccounts":            Suite.testKeysOfAccounts,
	"ListsWhileAccountsGo":      Suite.testListsWhileAccountsGo,
	"SettleAfterAccount":        Suite.testSettleAfterAccount,
	"OldSecretsAreErased":       Suite.testOldSecretsAreErased,
	"KeysOfEndedPlacesGo":       Suite.testKeysOfEndedPlacesGo,
	"SecretsGoWhenTheLogIsFree": Suite.testSecretsGoWhenTheLogIsFree,
	"MigratedSchemaIsTheNewOne": Suite.testMigratedSchemaIsTheNewOne,
	"MigratedValues":            Suite.testMigratedValues,
	"MigratedFileMode":          Suite.testMigratedFileMode,
}
