package audit

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestVerifiedIsTheLastThatWasJudged(t *testing.T) {
	record := func(seq int64, kind, facts string) Record {
		return Record{TaskSeq: seq, Kind: kind, Facts: json.RawMessage(facts)}
	}
	records := []Record{
		record(1, "task.admitted", `{}`),
		record(2, "verify.judged", `{"evidence":"sha256:a","outcome":"failed","flags":null}`),
		record(3, "verify.judged", `{"evidence":"sha256:b","outcome":"passed","passes":true,"compared":true,"removed":1,"flags":["removed-tests"]}`),
		record(4, "task.ended", `{}`),
	}
	got := verifiedOf(records)
	if got == nil || got.Record != 3 || got.Evidence != "sha256:b" || !got.Passes || got.Removed != 1 || !slices.Equal(got.Flags, []string{"removed-tests"}) {
		t.Errorf("verified %+v", got)
	}
	if got := verifiedOf(records[:1]); got != nil {
		t.Errorf("nothing judged is %+v", got)
	}
	b := Bundle{Records: records, Body: Body{Verified: got}}
	if !sameVerified(b) {
		t.Error("a receipt does not say what its records say")
	}
	forged := *got
	forged.Outcome = "failed"
	for _, v := range []*Verified{nil, &forged} {
		if b.Body.Verified = v; sameVerified(b) {
			t.Errorf("%+v passes for what the records say", v)
		}
	}
}
