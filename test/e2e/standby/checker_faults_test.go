package standby

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// faultless is a history without a fault: a writes in term 3, then b in term 5.
func faultless() (*diary, end) {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	d := &diary{
		operations: []operation{
			{machine: "a", term: 3, key: "k", value: 1, durable: true, sent: at(10), answered: at(11), outcome: kept},
			{machine: "a", term: 3, key: "m", value: 2, sent: at(12), answered: at(12.1), outcome: kept},
			{machine: "a", term: 3, key: "n", value: 3, durable: true, sent: at(13), answered: at(14), outcome: kept},
			{machine: "a", term: 3, key: "l", value: 4, sent: at(14.5), answered: at(14.6), outcome: kept}, // may be lost
			{machine: "a", term: 3, key: "u", value: 5, durable: true, sent: at(15), outcome: unknown},
			{machine: "b", term: 5, key: "k", value: 6, sent: at(60), answered: at(60.1), outcome: kept},
			{machine: "b", term: 5, key: "n", value: 0, sent: at(61), answered: at(61.1), outcome: kept},
			{machine: "b", term: 5, key: "m", value: 7, sent: at(62), answered: at(62.1), outcome: refused},
		},
		calls:   []call{{"a", at(10.5)}, {"a", at(19)}, {"b", at(60.5)}},
		tenures: []tenure{{"a", 3, at(5)}, {"b", 5, at(55)}},
		serials: []uint32{4294967290, 2, 3},
	}
	e := end{
		values:   map[string]int{"k": 6, "m": 2},
		wanted:   map[string]string{"provider k": "6"},
		standing: map[string]string{"provider k": "6"},
	}
	return d, e
}

// TestChecker makes each fault in a history that has none, and wants it found, and nothing else.
func TestChecker(t *testing.T) {
	second := time.Second
	for _, test := range []struct {
		name, finds string // finds is how the only finding begins, "" for none
		change      func(d *diary, e *end)
	}{
		{"no fault", "", func(*diary, *end) {}},
		{"what was unknown is there", "", func(d *diary, e *end) { e.values["u"] = 5 }},
		{"what was lost is there", "", func(d *diary, e *end) { e.values["l"] = 4 }},
		{"an acknowledgement after the other machine's first", "two writers", func(d *diary, e *end) {
			d.operations[3].answered = 60*second + 200*time.Millisecond
		}},
		{"an answer before the other machine's first, which arrives after it", "", func(d *diary, e *end) {
			d.operations[3].answered, d.operations[3].given = 60*second+200*time.Millisecond, 15*second
		}},
		{"an answer after the other machine's first, by its Date", "two writers", func(d *diary, e *end) {
			d.operations[3].answered, d.operations[3].given = 63*second, 62*second
		}},
		{"a term on two machines", "two writers", func(d *diary, e *end) { d.operations[3].machine = "b" }},
		{"a call after the other machine's first", "a late call", func(d *diary, e *end) { d.calls = append(d.calls, call{"a", 61 * second}) }},
		{"a call before the other machine's first", "", func(d *diary, e *end) { d.calls = append(d.calls, call{"a", 60 * second}) }},
		{"a call in a later term of its own", "", func(d *diary, e *end) {
			d.calls = append(d.calls, call{"a", 90 * second})
			d.tenures = append(d.tenures, tenure{"a", 7, 89 * second})
		}},
		{"a durable write is lost", "a lost write: k", func(d *diary, e *end) {
			d.operations[5].outcome = unknown
			delete(e.values, "k")
		}},
		{"a durable write has an older value", "a lost write: k", func(d *diary, e *end) { e.values["k"] = 1 }},
		{"a write before a durable one is lost", "a lost write: m", func(d *diary, e *end) { delete(e.values, "m") }},
		{"a write of the last term is lost", "a lost write: n", func(d *diary, e *end) { e.values["n"] = 3 }},
		{"a refused write is there", "a lost write: m", func(d *diary, e *end) { e.values["m"] = 7 }},
		{"a usage from nowhere", "a usage that no writer asked for: x", func(d *diary, e *end) { e.values["x"] = 9 }},
		{"a serial falls", "a fallen serial", func(d *diary, e *end) { d.serials = append(d.serials, 2) }},
		{"a record is missing", "DNS is not the database", func(d *diary, e *end) { delete(e.standing, "provider k") }},
		{"a record is left", "DNS is not the database", func(d *diary, e *end) { e.standing["secondary x"] = "9" }},
		{"a foreign value is gone", "a foreign value is touched", func(d *diary, e *end) { e.foreign = []string{"keep.example.com"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, e := faultless()
			test.change(d, &e)
			found := d.faults(e)
			switch {
			case test.finds == "" && len(found) > 0:
				t.Errorf("found %q in a history without a fault", found)
			case test.finds != "" && (len(found) == 0 || slices.ContainsFunc(found, func(f string) bool { return !strings.HasPrefix(f, test.finds) })):
				t.Errorf("found %q, want %q", found, test.finds)
			}
		})
	}
}
