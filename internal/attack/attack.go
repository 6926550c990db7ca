// Package attack has the checks that an operator runs against an installation: what
// is tried, from where, and what came of it.
//
// Words. A check is one thing that must not work. A box is the sandbox that it is
// tried from. A canary is something of this run that nothing inside may reach: a
// listener, a file, a name with a random part. A check held when it was tried and
// got nowhere, fell when it got somewhere, and is untried when it could not be tried.
//
// The program that runs inside is attack/inside. What it says is believed of
// refusals only; what reached a canary is counted outside, and outweighs it.
package attack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The outcomes of a check. The zero outcome is none of them, and never "held".
const (
	Held    = "held"
	Fell    = "fell"
	Untried = "untried"
)

// The boxes that checks are tried from.
const (
	Closed    = "closed"    // its policy names two hosts that don't exist
	Named     = "named"     // its policy names every address that must stay shut
	Small     = "small"     // its limits are small
	Through   = "through"   // its policy names a server that there is
	Neighbour = "neighbour" // another sandbox, that is to live on
	Outside   = ""          // tried by the command itself

	// The boxes of a platform apart, whose servers outside are the command's own.
	Lent    = "lent"    // a task's, which is lent credentials and has protected files
	Crowded = "crowded" // few names and connections are allowed
)

// Check is one thing that must not work.
type Check struct {
	ID    string `json:"id"` // such as egress.sni-mismatch
	Box   string `json:"-"`
	Tried string `json:"tried"`
}

// Result is what came of one check.
type Result struct {
	ID       string `json:"id"`
	Outcome  string `json:"outcome"`
	Tried    string `json:"tried"`
	Happened string `json:"happened"`
}

// Report is what the command prints as JSON.
type Report struct {
	OK      bool     `json:"ok"` // all held
	Held    int      `json:"held"`
	Fell    int      `json:"fell"`
	Untried int      `json:"untried"`
	Cut     bool     `json:"cut,omitempty"` // the time was used up before all were tried
	Seconds float64  `json:"seconds"`
	Checks  []Result `json:"checks"`
}

// Plan is what the program inside is told.
type Plan struct {
	Nonce    string   `json:"nonce"`    // random; whatever says it back came from a canary
	IDs      []string `json:"ids"`      // of the checks to try
	Abreast  int      `json:"abreast"`  // how many at a time; 0: as many as the program likes
	Hosts    []string `json:"hosts"`    // the machine's addresses
	TCP      int      `json:"tcp"`      // the port of the canaries on them
	UDP      int      `json:"udp"`      // likewise
	API      int      `json:"api"`      // the port of the installation's API; 0: not known
	Socket   string   `json:"socket"`   // path of a Unix socket on the machine
	Abstract string   `json:"abstract"` // name of an abstract one
	Files    []string `json:"files"`    // canaries on the machine, which everybody may read
	Next     int      `json:"next"`     // the port that the neighbour listens on, inside
	Process  int      `json:"process"`  // the id of the command's process on the machine
	Allowed  string   `json:"allowed"`  // a name that is allowed and doesn't exist
	Upstream string   `json:"upstream"` // NAME:PORT of a server with TLS that is allowed; empty: none
	Far      Far      `json:"far"`      // the command's own servers outside, of a platform apart
}

// Far is what the program inside knows of the servers outside that are the
// command's own. A request whose path has Must not arrive at any of them; one
// with May may arrive, without a value; one with Cut may begin to, and must not be
// whole.
type Far struct {
	Bound  int    `json:"bound"`  // port of far.test, which credentials are bound to
	Other  int    `json:"other"`  // port of far.test and else.test without any
	Plain  int    `json:"plain"`  // of the same, without TLS
	Begins string `json:"begins"` // what every value begins with; the rest is told to nobody
	Names  int    `json:"names"`  // how many names the crowded box may ask for
	Most   int    `json:"most"`   // how many connections it may have
}

// The names of the servers, and the parts of paths that say what must happen.
const (
	FarName   = "far.test"   // what credentials are bound to
	ElseName  = "else.test"  // where none is lent
	FalseName = "false.test" // bound too, and served with the certificate of FarName
	Must      = "no"
	May       = "may"
	Cut       = "cut"
)

// Saying is one line of the program inside.
type Saying struct {
	ID       string `json:"id"`
	Outcome  string `json:"outcome"`
	Happened string `json:"happened"`
}

// most is how long what happened may be.
const most = 400

// ReadSaying reads a line from inside. Checks that were not asked for, and
// outcomes that don't exist, are refused.
func ReadSaying(line string, asked []string) (Saying, error) {
	var s Saying
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		return Saying{}, fmt.Errorf("a line from inside is no JSON: %w", err)
	}
	if !slices.Contains(asked, s.ID) {
		return Saying{}, fmt.Errorf("a line from inside is about %.60q, which was not asked for", s.ID)
	}
	if s.Outcome != Held && s.Outcome != Fell && s.Outcome != Untried {
		return Saying{}, fmt.Errorf("%s: the outcome %.60q doesn't exist", s.ID, s.Outcome)
	}
	s.Happened = Brief(s.Happened)
	return s, nil
}

// Brief cuts a text, and makes it one line of valid UTF-8.
func Brief(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Family is the first word of an id.
func Family(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}

// Sum counts the results. Nothing tried is not all right.
func Sum(results []Result) Report {
	r := Report{Checks: results}
	for _, c := range results {
		switch c.Outcome {
		case Held:
			r.Held++
		case Fell:
			r.Fell++
		default:
			r.Untried++
		}
	}
	r.OK = r.Held > 0 && r.Held == len(results)
	return r
}

// Select returns the checks whose ids begin with prefix. Those that need a server
// outside are among them only when there is one.
func Select(prefix string, upstream bool) []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool {
		return !strings.HasPrefix(c.ID, prefix) || c.Box == Through && !upstream
	})
}
