package e2e

// historyChoice is a kind of step. prepare gives what to do, nil when it is
// not possible now.
type historyChoice struct {
	name    string
	weight  int
	prepare func(w *history) func()
	calm    bool // the step plans its faults itself
}

var historyChoices []historyChoice

func init() { // as the steps use the list
	historyChoices = []historyChoice{
		{name: "reserve", weight: 14, prepare: (*history).reserveCustom},
		{name: "reserve automatically", weight: 5, prepare: (*history).reserveAuto},
		{name: "change endpoints", weight: 5, prepare: (*history).changeEndpoints},
		{name: "release", weight: 9, prepare: (*history).releaseOne},
		{name: "release with force", weight: 4, prepare: (*history).forceOne},
		{name: "configure another domain", weight: 3, prepare: (*history).configureDomain},
		{name: "configure another account", weight: 6, prepare: (*history).configureAccount},
		{name: "configure other endpoints", weight: 2, prepare: (*history).configureEndpoints},
		{name: "rotate a key", weight: 5, prepare: (*history).rotateKey},
		{name: "change a secret", weight: 3, prepare: (*history).changeSecret},
		{name: "a key is refused or accepted again", weight: 4, prepare: (*history).refuseKey},
		{name: "put a service", weight: 7, prepare: (*history).putSomeService},
		{name: "delete a service", weight: 4, prepare: (*history).deleteSomeService},
		{name: "a zone appears or disappears", weight: 6, prepare: (*history).changeZone},
		{name: "ours is tampered with", weight: 4, prepare: (*history).tamper},
		{name: "a foreign value comes", weight: 4, prepare: (*history).foreignComes},
		{name: "a foreign value goes", weight: 2, prepare: (*history).foreignGoes},
		{name: "another mesh has the name", weight: 3, prepare: (*history).otherMesh},
		{name: "adopt", weight: 3, prepare: (*history).adopt},
		{name: "backup", weight: 2, prepare: (*history).backup},
		{name: "restore", weight: 5, prepare: (*history).restore},
		{name: "many usages change", weight: 200, prepare: (*history).changeCrowd, calm: true},
		{name: "a takeover", weight: 8, prepare: (*history).takeover, calm: true},
		{name: "orphan", weight: 4, prepare: (*history).orphan},
		{name: "forget a leftover", weight: 7, prepare: (*history).forgetLeftover},
		{name: "another mode", weight: 3, prepare: (*history).configureMode},
		{name: "disabled", weight: 2, prepare: (*history).disable},
		{name: "dry run", weight: 3, prepare: (*history).dryRun},
		{name: "restart", weight: 2, prepare: (*history).restart},
		{name: "nothing", weight: 2, prepare: func(*history) func() { return func() {} }},

		{name: twoSpellings, weight: 4, prepare: (*history).respell},
		{name: "two providers of one vendor", weight: 4, prepare: (*history).moveWithinVendor},
		{name: "two keys with one id", weight: 3, prepare: (*history).shareID},
		{name: "a wrong secret", weight: 3, prepare: (*history).wrongSecret},
		{name: "two keys of zones without ids", weight: 3, prepare: (*history).sameNamelessZones},
		{name: "two zones without ids", weight: 3, prepare: (*history).otherNamelessZones},
		{name: "two servers of one provider", weight: 3, prepare: (*history).moveBetweenServers},
		{name: "a move into an outage", weight: 5, prepare: (*history).moveIntoOutage, calm: true},
		{name: "a zone comes up in an outage", weight: 4, prepare: (*history).moveZoneIntoOutage, calm: true},
		{name: "stopped in a pass after a failure", weight: 3, prepare: (*history).stopAfterFailure, calm: true},
		{name: "a pass is asked for during a second look", weight: 4, prepare: (*history).syncDuringLook, calm: true},
		{name: "a service is put during a pass", weight: 4, prepare: (*history).putDuringPass, calm: true},
		{name: "a late write over a newer value", weight: 8, prepare: (*history).overwriteLate, calm: true},
		{name: "a late write after a withdrawal", weight: 8, prepare: (*history).withdrawLate, calm: true},
		{name: "a batch whose outcome is not known", weight: 4, prepare: (*history).breakBatch, calm: true},
		{name: "the clock is set", weight: 4, prepare: (*history).setClock, calm: true},
		{name: "a provider hangs", weight: 3, prepare: (*history).hangAccount, calm: true},
		{name: "a list of a zone hangs", weight: 2, prepare: (*history).hangList, calm: true},
		{name: "a list of a zone fails", weight: 3, prepare: (*history).failList, calm: true},
		{name: "change formats", weight: 12, prepare: (*history).changeFormats},
		{name: "a lease is made or renewed", weight: 8, prepare: (*history).lendOrRenew},
		{name: "a lease is replaced", weight: 3, prepare: (*history).replaceLease},
		{name: "more endpoints than there is room for", weight: 4, prepare: (*history).crowd},
		{name: "an endpoint dies", weight: 3, prepare: (*history).endpointDies, calm: true},
		{name: "several changes", weight: 5, prepare: (*history).several},
		{name: "a lease ends", weight: 3, prepare: (*history).endLease},
		{name: "a foreign value beside records without a mark", weight: 6, prepare: (*history).foreignBeside},
		{name: "a foreign value is the wanted one", weight: 4, prepare: (*history).foreignEqual, calm: true},
		{name: "a wrong key, a pass, the right key", weight: 4, prepare: (*history).wrongKey},
		{name: "away from the built-in server", weight: 6, prepare: (*history).leaveBuiltin, calm: true},
		{name: "built-in zones come and go", weight: 6, prepare: (*history).nestBuiltin, calm: true},
		{name: "an old view of records without a mark", weight: 5, prepare: (*history).showOld, calm: true},
		{name: "a batch is made after its halves", weight: 5, prepare: (*history).batchLate, calm: true},
		{name: "challenges are put", weight: 12, prepare: (*history).putChallenges},
		{name: "a call about a challenge is throttled", weight: 6, prepare: (*history).throttleChallenge, calm: true},
		{name: "a challenge is cleaned up", weight: 14, prepare: (*history).cleanChallenge},
		{name: "challenges are refused", weight: 4, prepare: (*history).refuseChallenges, calm: true},
		{name: "a foreign value beside challenges", weight: 7, prepare: (*history).foreignChallenge, calm: true},
		{name: "a foreign value is the challenge", weight: 8, prepare: (*history).equalChallenge, calm: true},
		{name: "challenges move", weight: 6, prepare: (*history).moveChallenges, calm: true},
		{name: "a kill while a challenge is put", weight: 5, prepare: (*history).killChallenge, calm: true},
		{name: "a late view of a challenge", weight: 5, prepare: (*history).staleChallenge, calm: true},
		{name: "the state at once", weight: 4, prepare: (*history).stateAtOnce, calm: true},
	}
}
