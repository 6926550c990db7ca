package audit

import (
	"fmt"
	"strings"
)

// Kind of a finding.
type Kind string

// What can be wrong with an account.
const (
	Malformed   Kind = "malformed"    // bytes that are not what was written
	Altered     Kind = "altered"      // a record or a receipt says something else than was signed
	Missing     Kind = "missing"      // records are gone from the middle
	Order       Kind = "order"        // records or receipts stand in another order
	TailCut     Kind = "tail-cut"     // the end is gone
	TaskDeleted Kind = "task-deleted" // a task's records or its receipt are gone
	WrongKey    Kind = "wrong-key"    // signed with another key
	NotInLog    Kind = "not-in-log"   // a receipt that the log does not hold
	Fork        Kind = "fork"         // two different histories were signed
)

// maxFindings bounds a report; a file of noise is one problem, not a million.
const maxFindings = 50

// Finding is one thing that is wrong.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Where string `json:"where"` // such as "record 12", "receipt of t-…", "line 3"
	Text  string `json:"text"`
}

// Error gives the finding in one line.
func (f *Finding) Error() string {
	if f.Where == "" {
		return string(f.Kind) + ": " + f.Text
	}
	return fmt.Sprintf("%s: %s: %s", f.Where, f.Kind, f.Text)
}

func found(kind Kind, text string) *Finding { return &Finding{Kind: kind, Text: text} }

// Report is the outcome of a verification. Nothing in it is to be believed
// unless OK.
type Report struct {
	Origin     string      `json:"origin"`               // the installation, from the key
	Task       string      `json:"task,omitempty"`       // of a receipt
	Body       *Body       `json:"body,omitempty"`       // of a receipt
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"` // the newest one seen: worth keeping elsewhere
	Note       string      `json:"note,omitempty"`       // the same, signed
	Keys       []string    `json:"keys,omitempty"`       // that signed, by their hashes, in the order of what they signed
	Records    int64       `json:"records"`
	Receipts   int64       `json:"receipts"`
	Open       []string    `json:"open,omitempty"` // tasks with records and no receipt: not ended, or their end was not recorded
	Findings   []Finding   `json:"findings"`
	Omitted    int         `json:"omitted,omitempty"` // findings beyond the first fifty
}

// OK says whether nothing wrong was found.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// Err returns nil when nothing wrong was found, and otherwise an error that
// names every finding.
func (r Report) Err() error {
	if r.OK() {
		return nil
	}
	lines := make([]string, 0, len(r.Findings))
	for _, f := range r.Findings {
		lines = append(lines, f.Error())
	}
	return fmt.Errorf("verification failed: %s", strings.Join(lines, "; "))
}

func (r *Report) add(where string, f *Finding) {
	if f == nil {
		return
	}
	if len(r.Findings) >= maxFindings {
		r.Omitted++
		return
	}
	r.Findings = append(r.Findings, Finding{Kind: f.Kind, Where: where, Text: f.Text})
}

func (r *Report) addf(where string, kind Kind, format string, args ...any) {
	r.add(where, found(kind, fmt.Sprintf(format, args...)))
}
