package notify

import (
	"net/http"
	"strings"
	"time"
)

// healthchecks is a check of Healthchecks, or any other dead man's switch. It gets no events but a
// GET each minute while all is well; when the GETs stay away, Healthchecks tells the operator
// (https://healthchecks.io/docs/http_api/).
var healthchecks = receiver{request: healthchecksRequest, judge: healthchecksJudge}

// pingEvery is the time between two GETs.
const pingEvery = time.Minute

func healthchecksRequest(t Target, _ message, _ time.Time) (*http.Request, error) {
	return http.NewRequest(http.MethodGet, string(t.URL), nil)
}

// healthchecksJudge reads the words of an answer, because Healthchecks answers 200 for an unknown
// check.
func healthchecksJudge(a answer) verdict {
	switch said := string(a.body); {
	case strings.Contains(said, "(not found)"):
		return verdict{outcome: final, said: said}
	case strings.Contains(said, "(rate limited)"):
		return verdict{outcome: later, said: said}
	}
	return verdict{}
}
