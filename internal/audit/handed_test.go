package audit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func mintedRecord(seq int64, lease string, seen bool, until time.Time) Record {
	text := fmt.Sprintf(`{"lease":%q,"audience":"a","stage":"agent","attempt":1,"sandbox":"sb-a","subject":"s","jti":"j%d","handedOver":%t,"from":"2026-03-01T12:00:00Z","until":%q,"record":99,"tokens":99}`,
		lease, seq, seen, until.Format(time.RFC3339))
	return Record{TaskSeq: seq, Kind: kindMinted, Facts: json.RawMessage(text)}
}

func TestHandedOver(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got := handedOf([]Record{
		{TaskSeq: 1, Kind: "task.admitted", Facts: json.RawMessage(`{"handedOver":true,"lease":"l-x"}`)},
		mintedRecord(2, "l-a", true, at.Add(10*time.Minute)), mintedRecord(3, "l-hidden", false, at),
		mintedRecord(4, "l-b", true, at.Add(time.Minute)), mintedRecord(5, "l-a", true, at.Add(12*time.Minute)),
		mintedRecord(6, "l-a", true, at.Add(11*time.Minute)),
		{TaskSeq: 7, Kind: kindMinted, Facts: json.RawMessage(`{"handedOver":"no"`)},
	})
	want := []HandedOver{
		{Record: 2, Last: 6, Tokens: 3, Stage: task.Agent, Attempt: 1, Sandbox: "sb-a", Lease: "l-a", Audience: "a", Subject: "s", From: at, Until: at.Add(12 * time.Minute)},
		{Record: 4, Last: 4, Tokens: 1, Stage: task.Agent, Attempt: 1, Sandbox: "sb-a", Lease: "l-b", Audience: "a", Subject: "s", From: at, Until: at.Add(time.Minute)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if handedOf(nil) != nil {
		t.Error("a task that was handed nothing has a list: its receipt would differ from those of before")
	}
}
