package audit

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Used is what the task used of models, as their servers said, and what that
// came to by the prices of then.
type Used struct {
	Record   int64             `json:"record"` // the task's record that says so
	Models   []task.ModelSpend `json:"models"` // by name
	Tokens   int64             `json:"tokens"`
	MicroUSD int64             `json:"microUSD"`           // millionths of a dollar
	Unpriced string            `json:"unpriced,omitempty"` // the first model without a price: then it is more than that
}

// usedOf reads what models were used for out of the records; nil: none was. A
// verifier does the same and compares.
func usedOf(records []Record) *Used {
	for _, r := range records {
		var u Used
		if r.Kind == "model.used" && json.Unmarshal(r.Facts, &u) == nil && len(u.Models) > 0 {
			u.Record = r.TaskSeq
			return &u
		}
	}
	return nil
}
