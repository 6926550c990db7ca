package audit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// KindKeyRotated is the kind of the record that says that another key signs from
// here on. Its facts are those of turn.
const KindKeyRotated = "audit.key_rotated"

// turn is that the key changed.
type turn struct {
	From     string `json:"from"`     // verifier key
	To       string `json:"to"`       // verifier key
	Receipts int64  `json:"receipts"` // in the log by then: the next one is signed by To
	By       string `json:"by"`

	seq      int64
	from, to string // by their hashes
}

// turned remembers a record that says that the key changed.
func (c *logCheck) turned(r Record) {
	if r.Kind != KindKeyRotated || r.Task != "" {
		return
	}
	where := fmt.Sprintf("record %d", r.Seq)
	t := turn{seq: r.Seq}
	if r.SeenBy != ControlPlane || json.Unmarshal(r.Facts, &t) != nil || t.Receipts < 0 {
		c.report.addf(where, Malformed, "it does not say which key followed which")
		return
	}
	var ok1, ok2 bool
	if t.from, ok1 = nameOf(t.From); !ok1 {
		c.report.addf(where, Malformed, "it does not say which key was rotated")
	}
	if t.to, ok2 = nameOf(t.To); !ok2 {
		c.report.addf(where, Malformed, "it does not say which key followed")
	}
	if ok1 && ok2 {
		c.turns = append(c.turns, t)
	}
}

// keys checks that each receipt and the last checkpoint were signed by the key
// that was in use, so that one that was rotated away signs nothing later.
func (c *logCheck) keys() {
	slices.SortStableFunc(c.turns, func(a, b turn) int { return int(a.seq - b.seq) })
	for i := 1; i < len(c.turns); i++ {
		if a, b := c.turns[i-1], c.turns[i]; a.to != b.from || a.Receipts > b.Receipts {
			c.report.addf(fmt.Sprintf("record %d", b.seq), Altered, "it says that the key %s was rotated, and %s was in use", b.from, a.to)
		}
	}
	for _, l := range c.leaves {
		if !slices.Contains(c.report.Keys, l.signer) {
			c.report.Keys = append(c.report.Keys, l.signer)
		}
		if want := c.keyAt(func(t turn) bool { return t.Receipts <= l.index }); want != "" && want != l.signer {
			c.report.addf("receipt of "+l.task, WrongKey, "it is receipt %d and was signed by the key %s, when %s was in use", l.index, l.signer, want)
		}
	}
	if c.final == nil {
		return
	}
	if !slices.Contains(c.report.Keys, c.final.Key) {
		c.report.Keys = append(c.report.Keys, c.final.Key)
	}
	if want := c.keyAt(func(t turn) bool { return t.seq <= c.final.Records }); want != "" && want != c.final.Key {
		c.report.addf("the checkpoint at the end", WrongKey, "it was signed by the key %s, which had been rotated to %s", c.final.Key, want)
	}
}

// keyAt is the key that was in use where the turns up to there had been made;
// empty: it was never rotated.
func (c *logCheck) keyAt(made func(turn) bool) string {
	if len(c.turns) == 0 {
		return ""
	}
	key := c.turns[0].from
	for _, t := range c.turns {
		if made(t) {
			key = t.to
		}
	}
	return key
}
