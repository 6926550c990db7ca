package audit

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestAskedOf(t *testing.T) {
	record := func(seq int64, kind, facts string) Record {
		return Record{TaskSeq: seq, Kind: kind, Facts: json.RawMessage(facts)}
	}
	got := askedOf([]Record{
		record(1, "stage.ended", `{"approval":"ap-0"}`),
		record(2, "approval.asked", `{"approval":"ap-1","kind":"egress","stage":"agent","digest":"sha256:1","subject":{"host":"a.test","port":443},"state":"allowed"}`),
		record(3, "approval.asked", `{"approval":"ap-2","kind":"tool","digest":"sha256:2"}`),
		record(4, "approval.decided", `{"approval":"ap-1","state":"allowed","scope":"task","decision":"d-1","by":"alice"}`),
		record(5, "approval.expired", `{"approval":"ap-9","state":"expired"}`),
		record(6, "approval.withdrawn", `{"approval":"ap-1","state":"withdrawn","scope":"task","decision":"d-1","by":"root"}`),
		record(7, "approval.asked", `{"approval":"ap-1","kind":"tool"}`),
		record(8, "approval.asked", `not JSON`),
	})
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	first, second := got[0], got[1]
	if first.Record != 2 || first.Answered != 6 || first.State != task.AskedWithdrawn || first.By != "root" || first.Digest != "sha256:1" || first.Subject.Host != "a.test" || first.Kind != task.AskEgress {
		t.Errorf("%+v", first)
	}
	if second.Record != 3 || second.Answered != 0 || second.State != task.AskedWaiting {
		t.Errorf("%+v", second)
	}
	// It is the same once it was written and read.
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var again []Asked
	if err := json.Unmarshal(raw, &again); err != nil || !slices.EqualFunc(got, again, equalAsked) {
		t.Errorf("%s %v", raw, err)
	}
	if none, err := json.Marshal(askedOf(nil)); err != nil || string(none) != "[]" {
		t.Errorf("%s %v", none, err)
	}
}
