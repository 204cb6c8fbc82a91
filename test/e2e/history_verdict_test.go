package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// leftover is an entry of GET /leftovers.
type leftover struct {
	ID, Name, Zone, Value string
	Provider, Error       string
	AccessKeyID           string `json:"access_key_id"`
}

// report is what GET /sync says.
type syncReport struct {
	OK      bool
	Counts  map[string]int
	Records []reported
}

type reported struct{ Name, Provider, Zone, Action, Value, Error string }

// check is what a step wants besides, when a verdict is given: it says what is wrong.
type check func(s *spotted, report syncReport)

// spotted is what a verdict looks at.
type spotted struct {
	ours      map[string][]found // by name
	leftovers []leftover
	wishes    map[string]*wish
	wrong     []string
}

func (s *spotted) say(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// verdict compares everything with the model, and says what is not so.
func (w *history) verdict(a answer) []string {
	w.t.Helper()
	w.forget()
	w.probes = nil
	s := &spotted{ours: map[string][]found{}, wishes: w.model.wishes(w.host.owner)}
	w.get(leftoversPath, &s.leftovers)
	for _, f := range w.scan(w.mine) {
		s.ours[f.name] = append(s.ours[f.name], f)
	}
	bad, perhaps := map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.wishes)) {
		wish := s.wishes[name]
		unreachable := w.checkName(s, name, wish)
		bad[name] = wish.bad || unreachable && !wish.optional && len(wish.options) > 0
		perhaps[name] = wish.perhaps || w.partly(name, wish)
	}
	for _, name := range slices.Sorted(maps.Keys(s.ours)) {
		if s.wishes[name] == nil {
			w.checkExtras(s, name, s.ours[name], nil)
		}
	}
	w.checkSiblings(s)
	w.checkForeign(s)
	w.checkReservations(s)
	w.checkChallenges(s)
	w.checkPrefixes(s)
	w.checkReport(s, a, bad, perhaps)
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, l := range w.host.late {
		at := l.spots[0]
		left := w.model.config.mode == "upsert-only" && slices.ContainsFunc(s.leftovers, func(l leftover) bool {
			return l.Zone == at.zone && strings.EqualFold(l.Name, at.name) // which is not withdrawn, and so not looked for
		})
		if w.open(at.account) && !w.shadowed(at.account, at.zone, at.name) && !left {
			s.say("a write at %s has an unknown outcome, and the program has not looked", at)
		}
	}
	return append(s.wrong, w.host.broken...)
}

// forget drops the usages whose release is through.
func (w *history) forget() {
	w.t.Helper()
	w.model.usages = slices.DeleteFunc(w.model.usages, func(u modelUsage) bool {
		return u.releasing && w.get(usagesPath+"/"+u.id, &struct{}{}) == 404
	})
	w.model.settle()
}

// checkPrefixes counts the usages that have each prefix: one that is free can be reserved.
func (w *history) checkPrefixes(s *spotted) {
	for id := range w.model.services {
		for _, prefix := range []string{"a", "b", "c"} {
			want := 0
			for _, u := range w.model.usages {
				if u.service == id && strings.EqualFold(u.prefix, prefix) {
					want++
				}
			}
			var got struct{ Count int }
			w.get("/api/v1/ddns/check-prefix?service_id="+id+"&prefix="+prefix, &got)
			if got.Count != want {
				s.say("the prefix %s of %s is occupied %d times, want %d", prefix, id, got.Count, want)
			}
		}
	}
}

// account gives what credentials open now, nil if nothing.
func (w *history) account(c credentials) *account {
	key := w.host.opens(c.provider, c.keyID, cmp.Or(c.secret, "none"))
	if key == nil || key.account.down != noFault {
		return nil
	}
	return key.account
}

// open says whether every key of an account is accepted now: any of them may
// be the one that a place needs. The built-in server, nil, always is.
func (w *history) open(a *account) bool {
	if a != nil && a.down != noFault {
		return false
	}
	for _, key := range w.host.keys {
		if key.account == a && (key.refused || key.outdated) {
			return false
		}
	}
	return true
}

// shadowed says that a zone of a bridge does not have a name any more, for a
// longer one has: its protocol has no words for what stands there.
func (w *history) shadowed(a *account, zone, name string) bool {
	return a != nil && a.provider == bridgeFront.provider && a.zoneOf(name) != zone
}

// locate gives the place of a value that is wanted.
func (w *history) locate(o option, name string) (f found, reachable bool) {
	f = found{name: name, text: o.value}
	if o.provider == "builtin" {
		return f, true
	}
	if f.account = w.account(o.credentials); f.account == nil {
		return f, false
	}
	f.zone = f.account.zoneOf(name)
	return f, f.zone != ""
}

// checkName looks at one name that is wanted. It reports whether the name
// cannot be published for a reason that the contract knows. Where one network
// has the name at several providers, it may stand at any of them.
func (w *history) checkName(s *spotted, name string, wish *wish) (unreachable bool) {
	extras := s.ours[name]
	unreachable = true
	var missing []found
	stands := false
	for _, o := range wish.options {
		at, reachable := w.locate(o, name)
		if !reachable || w.taken(at) {
			continue
		}
		unreachable = false
		missing = append(missing, at)
		extras = slices.DeleteFunc(slices.Clone(extras), func(f found) bool {
			same := f.account == at.account && f.zone == at.zone && f.text == at.text
			stands = stands || same
			return same
		})
	}
	kept := wish
	if (stands || !unreachable && !wish.optional) && !w.partly(name, wish) { // what stood goes when every new one stands
		kept = nil
	}
	w.checkExtras(s, name, extras, kept)
	switch {
	case unreachable && !wish.optional && len(wish.options) > 0:
		w.checkKept(s, name, wish)
	case !unreachable && !stands && !wish.optional:
		s.say("%s is missing; at the name stand %v", missing[0], s.ours[name])
	}
	return unreachable
}

// partly says that a name which one network has at several providers cannot be had at
// all of them.
func (w *history) partly(name string, wish *wish) bool {
	several := slices.ContainsFunc(wish.options, func(o option) bool { return o.credentials != wish.options[0].credentials })
	return several && slices.ContainsFunc(wish.options, func(o option) bool {
		at, reachable := w.locate(o, name)
		return !reachable || w.taken(at)
	})
}

// checkKept wants the old value of a name that cannot get its new one.
func (w *history) checkKept(s *spotted, name string, wish *wish) {
	same := func(f found) bool { return f.name == name && f.network == wish.network }
	stood := slices.ContainsFunc(w.before, func(f found) bool {
		return same(f) && (f.account == nil || f.account.zones[f.zone] != nil) // a zone may have gone with all that was in it
	})
	if stood && !slices.ContainsFunc(s.ours[name], same) && !w.tampered[name] && !w.left[name] {
		s.say("%s has lost the old value of network %q, and has no new one", name, wish.network)
	}
}

// taken says that another mesh's value, or an alias, keeps a place.
func (w *history) taken(at found) bool {
	if at.account == nil {
		return false
	}
	return slices.ContainsFunc(w.foreign[spot{at.account, at.zone, at.name}], func(text string) bool {
		owner, _ := marks(text)
		return owner != "" && !w.model.adopted[owner]
	})
}

// checkExtras looks at values that stand where nothing of ours is wanted. A
// wish that cannot be published keeps what stood before.
func (w *history) checkExtras(s *spotted, name string, extras []found, kept *wish) {
	for _, f := range extras {
		listed := slices.ContainsFunc(s.leftovers, func(l leftover) bool {
			known := l.Value == f.text || w.model.config.mode == "upsert-only" // which looks at no leftover: another write may have been made
			return strings.EqualFold(l.Name, name) && known && (f.account == nil || l.Zone == f.zone)
		})
		stood := slices.Contains(w.before, f) || w.cameLate(name)
		switch {
		case w.shadowed(f.account, f.zone, name):
			w.tally.add("values in the shadow of another zone", 1)
		case !listed && w.unsureProbe(name):
			w.probes = append(w.probes, fmt.Sprintf("%s waits to be withdrawn", f))
		case w.planted[f.text] && (kept != nil || w.model.config.mode == "upsert-only" || !w.open(f.account)):
			w.tally.add("values of tampering that may stay", 1)
		case w.taken(f):
			w.tally.add("values beside another mesh's", 1)
		case kept != nil && stood && (f.network == kept.network || kept.optional || !w.open(f.account)):
			w.tally.add("values that stay while the new place fails", 1)
		case !listed:
			s.say("%s stands, is not wanted, and is no leftover", f)
		case w.model.config.mode != "upsert-only" && (f.account == nil || w.open(f.account)):
			s.say("%s is a leftover, though nothing hinders its withdrawal", f)
		default:
			w.tally.add("leftovers", 1)
		}
	}
}

// cameLate says that a write at a name has arrived in this step, after it was sent.
func (w *history) cameLate(name string) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.lateNames[name]
}

// probeLate says that the write of a probe has an unknown outcome: it is looked for after ProbeTime.
func (w *history) probeLate() bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return slices.ContainsFunc(w.host.late, func(l *lateWrite) bool { return isProbe(l.spots[0].name) })
}

func isProbe(name string) bool { return strings.HasPrefix(name, "_mesh-test-") }

// unsureProbe says that a call about a probe has failed: no pass withdraws it, because its writer may still
// use it. The program does so by itself after ProbeTime, for which rest waits.
func (w *history) unsureProbe(name string) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.unsure[name]
}

// leftNow says that something waits for a later pass.
func (w *history) leftNow() bool {
	var all []leftover
	w.get(leftoversPath, &all)
	return len(all) > 0
}

// checkForeign compares the values of others octet for octet. Those of an
// adopted owner go where the name is wanted, and only there.
func (w *history) checkForeign(s *spotted) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	there := map[spot][]string{}
	for _, at := range w.host.all() {
		for _, text := range texts(w.host.values(at)) {
			if !w.mine(text) && !w.ourSibling(at, text) {
				there[at] = append(there[at], text)
			}
		}
	}
	for at, values := range w.foreign {
		taken := w.taken(found{account: at.account, zone: at.zone, name: at.name})
		w.foreign[at] = slices.DeleteFunc(values, func(text string) bool {
			owner, _ := marks(text)
			if !w.model.adopted[owner] || s.wishes[at.name] == nil {
				return false
			}
			gone := !slices.Contains(there[at], text)
			wanted := slices.ContainsFunc(s.wishes[at.name].options, func(o option) bool {
				place, reachable := w.locate(o, at.name)
				return reachable && place.account == at.account && place.zone == at.zone
			})
			if !gone && wanted && !taken && !s.wishes[at.name].optional && w.model.config.mode != "upsert-only" {
				s.say("%s has an adopted value still: %q", at, text)
			}
			return gone && (wanted || w.passing[at])
		})
	}
	for at := range w.foreign {
		there[at] = append([]string{}, there[at]...)
	}
	for at, values := range there {
		want := slices.Sorted(slices.Values(w.foreign[at]))
		if slices.Sort(values); !slices.Equal(values, want) {
			s.say("values of others at %s: %q, want %q", at, values, want)
		}
	}
}

// listedUsage is an entry of GET /usages/available.
type listedUsage struct {
	ID         string
	Service    string `json:"provider_id"`
	Prefix     string `json:"record_prefix"`
	Network    uint64 `json:"network_id"`
	FullDomain string `json:"full_domain"`
}

func (w *history) listed() (all []listedUsage) {
	w.t.Helper()
	w.get(usagesPath+"/available", &all)
	return all
}

// checkReservations wants every reservation that was acknowledged, and no other.
func (w *history) checkReservations(s *spotted) {
	listed := w.listed()
	w.checkCrowd(s, listed)
	listed = slices.DeleteFunc(listed, func(u listedUsage) bool { return u.Service == crowdService })
	for _, u := range listed {
		i := slices.IndexFunc(w.model.usages, func(m modelUsage) bool { return m.id == u.ID })
		if i < 0 || w.model.usages[i].prefix != u.Prefix || w.model.usages[i].network != u.Network || w.model.name(w.model.usages[i]) != strings.ToLower(u.FullDomain) {
			s.say("the usage %+v is not one that was reserved", u)
		}
	}
	for _, u := range w.model.usages {
		if !slices.ContainsFunc(listed, func(l listedUsage) bool { return l.ID == u.id }) {
			s.say("the reservation %+v is lost", u)
		}
		if u.releasing && w.canWithdraw(w.model.name(u)) {
			s.say("the release of %s is not through", w.model.name(u))
		}
	}
}

// canWithdraw says that nothing hinders the withdrawal of a name, wherever it
// may have been put.
func (w *history) canWithdraw(name string) bool {
	for _, a := range w.host.accounts {
		if !w.open(a) {
			return false
		}
		for zone := range a.zones {
			if within(name, zone) && w.shadowed(a, zone, name) {
				return false
			}
		}
	}
	return true
}

// checkReport compares what the pass said with what it can have met.
func (w *history) checkReport(s *spotted, a answer, bad, perhaps map[string]bool) {
	var report syncReport
	w.get(syncPath, &report)
	for _, check := range w.checks {
		check(s, report)
	}
	if !w.manual() {
		return // a pass in the background may have been between
	}
	reported, told := map[string]string{}, map[string]bool{}
	for _, r := range report.Records {
		name := strings.ToLower(r.Name)
		if strings.Contains(name, " ") {
			name = spotName(r.Name) + " " // of a record without a mark
		}
		told[name] = true
		if (r.Action == "failed" || r.Action == "conflict") && !(inCrowd(name) && w.crowdMayFail()) {
			reported[name] = r.Action + ": " + r.Error
		}
	}
	w.checkStatus(s, a, reported)
	for name, reason := range reported {
		if at, unmarked := strings.CutSuffix(name, " "); unmarked {
			if excused, _ := w.excused(s, at); !excused && !w.denied(at) {
				s.say("%s is reported for no reason: %s", at, reason)
			}
			continue
		}
		if !bad[name] && !perhaps[name] && !w.stuck(s, name) && (s.wishes[name] == nil || !s.wishes[name].refused) {
			s.say("%s is reported for no reason: %s", name, reason)
		}
	}
	for name := range w.wantedSiblings(s.wishes) {
		if _, must := w.excused(s, name); must && reported[name+" "] == "" {
			s.say("%s cannot be as wanted, and is not reported", name)
		}
	}
	for name, wish := range s.wishes {
		if (wish.skipped || wish.refused) && !perhaps[name] && !told[name] {
			s.say("%s has nowhere to go, and is not reported", name)
		}
		if bad[name] && !perhaps[name] && reported[name] == "" {
			s.say("%s cannot be as wanted, and is not reported", name)
		}
	}
}

// checkStatus compares the status of a pass with its report: what the rule about owners refuses to a tenant is no failure.
func (w *history) checkStatus(s *spotted, a answer, reported map[string]string) {
	may, must := w.crowdMayFail(), false
	for name := range reported {
		at, unmarked := strings.CutSuffix(name, " ")
		tenants := w.denied(at)
		if wish := s.wishes[name]; !unmarked {
			tenants = slices.ContainsFunc(w.model.group(name), func(u modelUsage) bool { return u.tenant })
			must = must || wish != nil && wish.bad
			may = may || wish == nil || wish.bad || !wish.refused
		} else {
			may = true
		}
		must = must || !tenants
	}
	if a.status != 200 && !may || a.status == 200 && must {
		s.say("POST /sync says %d, and its report names %v", a.status, reported)
	}
}

// stuck says that a value of ours is where it cannot be reached.
func (w *history) stuck(s *spotted, name string) bool {
	return slices.ContainsFunc(s.ours[name], func(f found) bool {
		return f.account != nil && (!w.open(f.account) || w.shadowed(f.account, f.zone, name))
	})
}
