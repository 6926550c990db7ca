package audit

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/traffic"
)

// The kinds of records that say what was reached and lent.
const (
	kindCollected = "egress.collected"
	kindLent      = "credential.lent"
	kindGiven     = "credential.given"
	kindEnded     = "credential.ended"
)

// Reached is what a sandbox, or our own agent loop, went to, as its gateway
// counted it.
type Reached struct {
	Record  int64  `json:"record"` // the task's last record that says so
	Sandbox string `json:"sandbox"`
	traffic.Reached
}

// Lent is one lease: which credential was lent to which stage for what, from
// when until when, and how often it was used. It never holds the value.
type Lent struct {
	Record     int64             `json:"record"` // the task's first record that says so
	Ended      int64             `json:"ended"`  // and the last of its end; 0: none
	Lease      string            `json:"lease"`
	Times      int               `json:"times"` // how often it was made: again, where its stage was taken up again
	Credential string            `json:"credential"`
	Kind       string            `json:"kind"`
	Stage      task.StageName    `json:"stage"`
	Attempt    int               `json:"attempt"`
	Sandbox    string            `json:"sandbox"`
	Settings   map[string]string `json:"settings,omitempty"` // what narrows it, such as a repository
	Hosts      []string          `json:"hosts"`
	Ports      []uint16          `json:"ports"`
	Methods    []string          `json:"methods,omitempty"`
	Paths      []string          `json:"paths,omitempty"`
	From       time.Time         `json:"from"`
	Until      *time.Time        `json:"until,omitempty"` // absent: it had not ended
	Why        string            `json:"why,omitempty"`   // it ended
	Given      bool              `json:"given"`           // its value was given to a gateway, or to our own loop
	Uses       int64             `json:"uses"`            // requests and logins that the value was put into
}

// collectedOf are the last records of each sandbox's traffic, in the order of the
// records. Each counts all that came before it.
func collectedOf(records []Record) (of []collected) {
	at := map[string]int{}
	for _, r := range records {
		one := collected{record: r.TaskSeq}
		if r.Kind != kindCollected || json.Unmarshal(r.Facts, &one) != nil || one.Sandbox == "" {
			continue
		}
		i, known := at[one.Sandbox]
		switch {
		case !known:
			at[one.Sandbox] = len(of)
			of = append(of, one)
		case one.LastSeq >= of[i].LastSeq:
			of[i] = one
		}
	}
	return of
}

type collected struct {
	record  int64
	Sandbox string `json:"sandbox"`
	LastSeq int64  `json:"lastSeq"`
	traffic.Sum
}

// reachedOf reads what was reached out of the records. A verifier does the same
// and compares.
func reachedOf(records []Record) []Reached {
	list := []Reached{}
	for _, c := range collectedOf(records) {
		for _, one := range c.Reached {
			list = append(list, Reached{Record: c.record, Sandbox: c.Sandbox, Reached: one})
		}
	}
	return list
}

// lentOf reads what was lent out of the records, in the order of the first record
// of each lease. A verifier does the same and compares.
func lentOf(records []Record) []Lent {
	list, at := []Lent{}, map[string]int{}
	for _, r := range records {
		var one Lent
		if !strings.HasPrefix(r.Kind, "credential.") || json.Unmarshal(r.Facts, &one) != nil || one.Lease == "" {
			continue
		}
		i, known := at[one.Lease]
		switch {
		case r.Kind == kindLent && !known:
			one.Record, one.Ended, one.Times, one.Until, one.Why, one.Given, one.Uses = r.TaskSeq, 0, 1, nil, "", false, 0
			at[one.Lease] = len(list)
			list = append(list, one)
		case !known:
		case r.Kind == kindLent:
			list[i].Times, list[i].Ended, list[i].Until, list[i].Why = list[i].Times+1, 0, nil, ""
		case r.Kind == kindGiven:
			list[i].Given = true
		case r.Kind == kindEnded:
			list[i].Ended, list[i].Until, list[i].Why = r.TaskSeq, one.Until, one.Why
		}
	}
	for _, c := range collectedOf(records) {
		for lease, n := range c.Uses {
			if i, known := at[lease]; known {
				list[i].Uses += n
			}
		}
	}
	return list
}

// sameLent compares what a receipt says with what its records say.
func sameLent(a, b []Lent) bool {
	return slices.EqualFunc(a, b, func(a, b Lent) bool {
		for _, x := range []*Lent{&a, &b} {
			x.From = x.From.UTC()
			if x.Until != nil {
				until := x.Until.UTC()
				x.Until = &until
			}
		}
		return reflect.DeepEqual(a, b)
	})
}
