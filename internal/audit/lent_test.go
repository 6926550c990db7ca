package audit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/traffic"
)

func fact(seq int64, kind, text string) Record {
	return Record{TaskSeq: seq, Kind: kind, Facts: json.RawMessage(text)}
}

const leaseText = `{"lease":"l-a","count":1,"credential":"key","kind":"git","stage":"agent","attempt":1,"sandbox":"sb-a","settings":{"repository":"o/r"},
	"header":"","hosts":["a.test"],"ports":[443],"methods":["GET"],"from":"2026-03-01T12:00:00Z","task":"t","uses":99,"given":true,"record":77,"times":5}`

// accounted are the records of a task that was lent one thing twice, used it in
// two places, and reached two hosts.
func accounted() []Record {
	ended := func(at string) string {
		return strings.TrimSuffix(leaseText, "}") + `,"until":"` + at + `","why":"stage"}`
	}
	return []Record{
		fact(1, kindLent, leaseText), fact(2, kindGiven, leaseText), fact(3, kindEnded, ended("2026-03-01T12:01:00Z")),
		fact(4, kindLent, leaseText), fact(5, "credential.minted", `{"lease":"l-a"}`),
		fact(6, kindCollected, `{"sandbox":"sb-a","lastSeq":4,"uses":{"l-a":1},"reached":[{"stage":"agent","host":"a.test","port":443,"connections":1,"requests":1,"bytesIn":1,"bytesOut":1}]}`),
		fact(7, kindCollected, `{"sandbox":"sb-a/loop","lastSeq":2,"uses":{"l-a":2}}`),
		fact(8, kindEnded, ended("2026-03-01T12:02:00Z")), fact(9, kindEnded, `{"lease":"l-unknown"}`), fact(10, kindLent, `{"lease":7}`),
		fact(11, kindCollected, `{"sandbox":"sb-a","lastSeq":9,"uses":{"l-a":3,"l-other":1},"reached":[
			{"stage":"agent","host":"a.test","port":443,"connections":2,"requests":3,"bytesIn":10,"bytesOut":20},
			{"stage":"agent","host":"b.test","port":22,"connections":1,"requests":0,"bytesIn":0,"bytesOut":0}]}`),
		fact(12, kindCollected, `{"sandbox":"sb-a","lastSeq":3,"uses":{"l-a":100}}`), // an older count that came late
		fact(13, kindCollected, `{"allowed":1,"denied":2}`),                          // of before hosts were counted
	}
}

func TestLentAndReached(t *testing.T) {
	until := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	lent := lentOf(accounted())
	want := []Lent{{
		Record: 1, Ended: 8, Lease: "l-a", Times: 2, Credential: "key", Kind: "git", Stage: task.Agent, Attempt: 1, Sandbox: "sb-a",
		Settings: map[string]string{"repository": "o/r"}, Hosts: []string{"a.test"}, Ports: []uint16{443}, Methods: []string{"GET"},
		From: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Until: &until, Why: "stage", Given: true, Uses: 5,
	}}
	if !sameLent(lent, want) {
		t.Errorf("lent %+v", lent)
	}
	reached := reachedOf(accounted())
	of := func(host string, port uint16, conns, requests, in, out int64) Reached {
		return Reached{Record: 11, Sandbox: "sb-a", Reached: traffic.Reached{Stage: task.Agent, Host: host, Port: port, Connections: conns, Requests: requests, BytesIn: in, BytesOut: out}}
	}
	if want := []Reached{of("a.test", 443, 2, 3, 10, 20), of("b.test", 22, 1, 0, 0, 0)}; !reflect.DeepEqual(reached, want) {
		t.Errorf("reached %+v", reached)
	}
	if open := lentOf(accounted()[:4]); len(open) != 1 || open[0].Until != nil || open[0].Ended != 0 || open[0].Times != 2 {
		t.Errorf("taken up again, and not ended: %+v", open)
	}
	if none := lentOf(nil); none == nil || len(none) > 0 || reachedOf(nil) == nil {
		t.Error("a task that was lent nothing does not say so")
	}
}

// A receipt that disagrees with its records does not verify, also when it is
// signed; one of before these were counted does.
func TestReceiptSaysWhatWasLent(t *testing.T) {
	s := newSite(t)
	id := taskID(3)
	s.begin(id)
	for _, r := range accounted() {
		s.record(id, r.Kind+"/"+string(rune('a'+r.TaskSeq)), r.Kind, Gateway, r.Facts)
	}
	raw := s.end(id)
	report, err := VerifyReceipt(s.key.Public(), raw)
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	if b := report.Body; len(b.Lent) != 1 || b.Lent[0].Uses != 5 || len(b.Reached) != 2 {
		t.Errorf("%+v", report.Body)
	}
	for name, c := range map[string]struct {
		change func(b *Body)
		want   string // empty: it verifies
	}{
		"a use less":       {func(b *Body) { b.Lent[0].Uses-- }, "was lent"},
		"another resource": {func(b *Body) { b.Lent[0].Settings = map[string]string{"repository": "*/*"} }, "was lent"},
		"nothing lent":     {func(b *Body) { b.Lent = []Lent{} }, "was lent"},
		"a host less":      {func(b *Body) { b.Reached = b.Reached[1:] }, "was reached"},
		"of before":        {func(b *Body) { b.Lent, b.Reached = nil, nil }, ""},
	} {
		var b Bundle
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatal(err)
		}
		c.change(&b.Body)
		report := Report{}
		checkBody(b, "receipt", &report)
		if err := report.Err(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
