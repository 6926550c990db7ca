package audit

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What models were used for is in the receipt as the first record says.
func TestUsedOf(t *testing.T) {
	spend := task.ModelSpend{ModelTokens: task.ModelTokens{Model: "m", Input: 3, Output: 2, CacheRead: 1}, Requests: 2, MicroUSD: 40, Priced: true}
	facts, err := json.Marshal(Used{Models: []task.ModelSpend{spend}, Tokens: 6, MicroUSD: 40, Unpriced: "x"})
	if err != nil {
		t.Fatal(err)
	}
	records := []Record{
		{TaskSeq: 1, Kind: "other", Facts: facts}, {TaskSeq: 2, Kind: "model.used", Facts: []byte(`[]`)}, {TaskSeq: 3, Kind: "model.used", Facts: facts},
		{TaskSeq: 4, Kind: "model.used", Facts: []byte(`{"models":[{"model":"later"}]}`)},
	}
	want := &Used{Record: 3, Models: []task.ModelSpend{spend}, Tokens: 6, MicroUSD: 40, Unpriced: "x"}
	if got := usedOf(records); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := usedOf(records[:2]); got != nil {
		t.Errorf("%+v of nothing", got)
	}
}
