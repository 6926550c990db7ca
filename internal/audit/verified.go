package audit

import (
	"encoding/json"
	"reflect"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Verified is what was verified of the task's patch. The evidence, which is an output,
// has the rest.
type Verified struct {
	Record   int64       `json:"record"`   // the task's record that says so
	Evidence task.Digest `json:"evidence"` // of output evidence
	Base     string      `json:"base"`     // commit
	Patch    task.Digest `json:"patch"`
	Command  task.Digest `json:"command"` // of its text

	Outcome string      `json:"outcome"` // passed, failed or flaky
	Passes  bool        `json:"passes"`
	Reason  task.Reason `json:"reason,omitempty"`

	Tests    int `json:"tests"`
	Failures int `json:"failures"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`

	Compared     bool     `json:"compared"` // with the base; else what follows is empty
	NewlyFailing int      `json:"newlyFailing"`
	NewlyPassing int      `json:"newlyPassing"`
	Removed      int      `json:"removed"`
	NewlySkipped int      `json:"newlySkipped"`
	Findings     int      `json:"findings"`
	Flags        []string `json:"flags"`
}

// verifiedOf reads what was verified out of the records, the last time it was; nil:
// nothing was. A verifier does the same and compares.
func verifiedOf(records []Record) *Verified {
	var last *Verified
	for _, r := range records {
		var v Verified
		if r.Kind == "verify.judged" && json.Unmarshal(r.Facts, &v) == nil {
			v.Record, v.Flags = r.TaskSeq, append([]string{}, v.Flags...)
			last = &v
		}
	}
	return last
}

// sameVerified says whether a receipt says what its records say. Receipts of before
// there was evidence say nothing, as their records do.
func sameVerified(b Bundle) bool {
	return reflect.DeepEqual(b.Body.Verified, verifiedOf(b.Records))
}
