package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// One in ten histories has a crowd: a service with thousands of usages at a provider that takes few calls a second. Beside it the
// steps do what they do in the other histories.

const (
	crowdZone    = "many.example"
	crowdService = "many"
	crowdCalls   = 5  // a second, of as many usages as MESHDDNS_HISTORY_USAGES says
	fewCalls     = 50 // of fewUsages
	crowdLimit   = 10 * time.Minute
	crowdSteps   = 3
	fewUsages    = 300
)

// crowdModel is what must stand in the zone of the service.
type crowdModel struct {
	account *account              // only its key leads to it
	usages  map[string]crowdUsage // by prefix
	service modelService
}

type crowdUsage struct {
	id        string
	endpoints []string // of its own
}

func (c *crowdModel) clone() *crowdModel {
	if c == nil {
		return nil
	}
	return &crowdModel{c.account, maps.Clone(c.usages), c.service}
}

func inCrowd(name string) bool { return within(bare(name), crowdZone) }

// gather makes the crowd.
func (w *history) gather(size int) {
	w.t.Helper()
	at := w.host.open(powerFront.provider, "crowd", crowdZone)
	w.host.accounts = w.host.accounts[:len(w.host.accounts)-1]
	at.server = w.host.listen(powerFront, false)
	w.host.addKey(at, at.provider, "localhost", secretMark+"crowd.")
	key := credentials{at.provider, "localhost", secretMark + "crowd.", at.server}
	w.many = &crowdModel{at, map[string]crowdUsage{}, modelService{id: crowdService, domain: crowdZone, credentials: key, endpoints: w.endpoints()}}
	w.crowdAsks("PUT", servicesPath+crowdService, w.many.service.body(w.host.addrs))
	var prefixes []string
	for n := range size {
		prefixes = append(prefixes, fmt.Sprintf("p%d", n))
	}
	w.join(prefixes)
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	if at.pace = crowdCalls; size <= fewUsages {
		at.pace = fewCalls
	}
}

// crowdAsks makes a request that must be answered 200. It says nothing of the request: there are many.
func (w *history) crowdAsks(method, path, body string) answer {
	w.t.Helper()
	a, err := w.p.try(method, path, body)
	if err != nil || a.status != http.StatusOK {
		w.t.Errorf("%s %s: %d %s %v", method, path, a.status, a.body, err)
	}
	return a
}

// together asks for each of some prefixes, some at a time.
func (w *history) together(prefixes []string, ask func(prefix string)) {
	var callers sync.WaitGroup
	for part := range slices.Chunk(prefixes, max(1, len(prefixes)/8)) {
		callers.Go(func() {
			for _, prefix := range part {
				ask(prefix)
			}
		})
	}
	callers.Wait()
}

func (w *history) join(prefixes []string) {
	var mu sync.Mutex
	w.together(prefixes, func(prefix string) {
		a := w.crowdAsks("POST", usagesPath, jsonText(map[string]any{"service_id": crowdService, "prefix_mode": "custom", "custom_prefix": prefix, "network_id": 5}))
		mu.Lock()
		defer mu.Unlock()
		w.many.usages[prefix] = crowdUsage{id: a.field("id")}
	})
}

// changeCrowd changes the endpoints of the service, or some usages.
func (w *history) changeCrowd() func() {
	if w.many == nil {
		return nil
	}
	choice := w.random.IntN(4)
	there := slices.Sorted(maps.Keys(w.many.usages))
	w.random.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
	some := there[:min(len(there), 100)]
	return func() {
		w.strict = false
		w.tally.add(fmt.Sprintf("changes of a crowd, of kind %d", choice), 1)
		w.say("  the crowd: %d", choice)
		switch choice {
		case 0:
			w.many.service.endpoints = w.endpoints()
			w.crowdAsks("PUT", servicesPath+crowdService, w.many.service.body(w.host.addrs))
		case 1:
			for _, prefix := range some {
				m := w.many.usages[prefix]
				m.endpoints = w.endpoints()
				w.crowdAsks("PATCH", usagesPath+"/"+m.id, jsonText(map[string]any{"txt_endpoints": m.endpoints}))
				w.many.usages[prefix] = m
			}
		case 2:
			w.leave(some)
		case 3:
			var more []string
			for range 100 {
				w.serial++
				more = append(more, fmt.Sprintf("q%d", w.serial))
			}
			w.join(more)
		}
	}
}

// leave releases usages, whose values passes withdraw, except in mode upsert-only.
func (w *history) leave(prefixes []string) {
	w.together(prefixes, func(prefix string) { w.crowdAsks("DELETE", usagesPath+"/"+w.many.usages[prefix].id+"?force=1", "") })
	for _, prefix := range prefixes {
		delete(w.many.usages, prefix)
	}
}

// disperse ends the crowd.
func (w *history) disperse() {
	if w.many == nil {
		return
	}
	w.leave(slices.Collect(maps.Keys(w.many.usages)))
	w.rest("the crowd is released")
	w.crowdAsks("DELETE", servicesPath+crowdService, "")
}

// checkCrowd compares the zone, and the list of usages, with what is to be there.
func (w *history) checkCrowd(s *spotted, listed []listedUsage) {
	if w.many == nil || !w.open(w.many.account) {
		return
	}
	ids := map[string]string{}
	for _, u := range listed {
		if u.Service == crowdService {
			ids[u.Prefix] = u.ID
		}
	}
	want := map[string]string{}
	for prefix, m := range w.many.usages {
		endpoints := m.endpoints
		if len(endpoints) == 0 {
			endpoints = w.many.service.endpoints
		}
		want["_mesh."+prefix+"."+crowdZone] = meshValue("5", w.host.owner, endpoints)
		if ids[prefix] != m.id {
			s.say("the reservation of %s is lost", prefix)
		}
	}
	if len(ids) != len(want) {
		s.say("the crowd has %d usages, want %d", len(ids), len(want))
	}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	wrong := 0
	zone := w.many.account.zones[crowdZone]
	for name, values := range zone {
		for _, v := range values {
			if stays := want[name] == "" && w.model.config.mode == "upsert-only"; v.text != want[name] && !stays {
				if wrong++; wrong < 3 {
					s.say("%s has %q, want %q", name, v.text, want[name])
				}
			}
		}
	}
	for name := range want {
		if len(zone[name]) != 1 {
			if wrong++; wrong < 3 {
				s.say("%s has %d values", name, len(zone[name]))
			}
		}
	}
	if wrong > 0 {
		s.say("%d of the crowd are not as wanted", wrong)
	}
	w.tally.add("names of crowds compared", len(want))
}

// paced says that an account has had as many calls in this second as it takes.
func (a *account) paced() bool {
	if a.pace == 0 {
		return false
	}
	a.calls = slices.DeleteFunc(a.calls, func(at time.Time) bool { return time.Since(at) > time.Second })
	if len(a.calls) >= a.pace {
		return true
	}
	a.calls = append(a.calls, time.Now())
	return false
}

// crowdMayFail says that the key of the crowd is refused.
func (w *history) crowdMayFail() bool { return w.many != nil && !w.open(w.many.account) }
