package audit

import (
	"encoding/json"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// kindMinted is the kind of the records of tokens that say who a run is.
const kindMinted = "identity.minted"

// HandedOver is what a stage was given to see: the tokens of its run's identity
// for one audience. Nothing else that is real is ever seen inside.
type HandedOver struct {
	Record   int64          `json:"record"` // the task's first record that says so
	Last     int64          `json:"last"`   // and the last one
	Tokens   int64          `json:"tokens"` // how many; each has a record with its id
	Stage    task.StageName `json:"stage"`
	Attempt  int            `json:"attempt"`
	Sandbox  string         `json:"sandbox"`
	Lease    string         `json:"lease"`
	Audience string         `json:"audience"`
	Subject  string         `json:"subject"`
	From     time.Time      `json:"from"`  // of the first token
	Until    time.Time      `json:"until"` // when the last one ends by itself
}

func equalHanded(a, b HandedOver) bool {
	same := a.From.Equal(b.From) && a.Until.Equal(b.Until)
	a.From, a.Until, b.From, b.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}

// handedOf reads what was handed over out of the records, by lease, in the order
// of the first record of each. A verifier does the same and compares.
func handedOf(records []Record) []HandedOver {
	var list []HandedOver
	at := map[string]int{}
	for _, r := range records {
		var facts struct {
			HandedOver
			Handed bool `json:"handedOver"`
		}
		if r.Kind != kindMinted || json.Unmarshal(r.Facts, &facts) != nil || !facts.Handed {
			continue
		}
		one := facts.HandedOver
		i, known := at[one.Lease+"\x00"+one.Audience]
		if !known {
			one.Record, one.Last, one.Tokens = r.TaskSeq, r.TaskSeq, 1
			at[one.Lease+"\x00"+one.Audience] = len(list)
			list = append(list, one)
			continue
		}
		list[i].Last, list[i].Tokens = r.TaskSeq, list[i].Tokens+1
		if one.Until.After(list[i].Until) {
			list[i].Until = one.Until
		}
	}
	return list
}
