package standby

// clockName is the variable that asks for wall clocks which can be set, wallName that of the file with the seconds by which
// the clock of a machine is wrong.
const clockName, wallName = "MESHDDNS_STANDBY_CLOCK", "STANDBY_WALL"

// wallClock gives the program a wall clock that a test can set: that of rows, due times, leases and serials, and that of
// signatures. The kernel has one such clock for all its namespaces, which a test must not set. The agent reads none, and
// Litestream keeps the true one.
var wallClock = control{name: "a wall clock that can be set", program: []mistake{
	{"store.go", "import (", "import (\n\t\"os\""},
	{"store.go", "now: time.Now,", "now: " + wallNow + ","},
	{"internal/provider/rfc2136.go", "import (", "import (\n\t\"os\""},
	{"internal/provider/rfc2136.go", "now: time.Now,", "now: " + wallNow + ","},
}}

const wallNow = `func() time.Time {
	text, _ := os.ReadFile(os.Getenv("` + wallName + `"))
	seconds, _ := strconv.Atoi(string(text))
	if seconds == 0 {
		return time.Now()
	}
	return time.Now().Round(0).Add(time.Duration(seconds) * time.Second)
}`
