package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// world is an installation with three ended tasks and an open one, and what
// was kept outside of it.
type world struct {
	*site
	early     []byte // an export made when only the first task had ended
	trusted   Checkpoint
	receipts  [][]byte
	exported  []byte
	otherPub  string
	otherSite *site
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldOf(newSite(t), newSite(t))
}

func worldOf(own, other *site) *world {
	t := own.t
	t.Helper()
	w := &world{site: own, otherSite: other}
	w.record("", "start", "program.started", ControlPlane, nil)
	w.receipts = append(w.receipts, w.run(taskID(0)))
	w.early = export(t, w.site)
	w.receipts = append(w.receipts, w.run(taskID(1)), w.run(taskID(2)))
	w.begin(taskID(3))
	note, err := w.log.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w.trusted, err = ParseCheckpoint(w.key.Public(), []byte(note)); err != nil {
		t.Fatal(err)
	}
	w.exported = export(t, w.site)
	w.otherSite.run(taskID(0))
	w.otherPub = w.otherSite.key.Public()
	return w
}

// rewritten is another history signed with the same key: what a holder of the
// key can do.
func (w *world) rewritten(tasks ...int) *site {
	w.t.Helper()
	s := siteWith(w.t, newMemory(), w.key)
	s.record("", "start", "program.started", ControlPlane, nil)
	for _, n := range tasks {
		s.run(taskID(n))
	}
	return s
}

// lines are an export's; they can be changed and joined again.
type lines []string

func split(export []byte) lines {
	return strings.SplitAfter(strings.TrimSuffix(string(export), "\n"), "\n")
}

func (l lines) join() []byte {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(strings.TrimSuffix(s, "\n") + "\n")
	}
	return []byte(b.String())
}

// find returns the places of the lines that hold all of the words.
func (l lines) find(words ...string) (at []int) {
	for i, s := range l {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) }) {
			at = append(at, i)
		}
	}
	return at
}

func (l lines) without(at ...int) lines {
	var out lines
	for i, s := range l {
		if !slices.Contains(at, i) {
			out = append(out, s)
		}
	}
	return out
}

// forged changes the record in line i and gives it a fitting hash.
func (l lines) forged(t *testing.T, i int, change func(*Record)) lines {
	t.Helper()
	var v line
	if err := json.Unmarshal([]byte(l[i]), &v); err != nil || v.Record == nil {
		t.Fatalf("line %d is no record: %v", i, err)
	}
	change(v.Record)
	var err error
	if v.Record.Hash, err = hashRecord(*v.Record); err != nil {
		t.Fatal(err)
	}
	raw, err := canonical(v)
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Clone(l)
	out[i] = string(raw)
	return out
}

const (
	recordLine  = `"type":"record"`
	receiptLine = `"type":"receipt"`
	ofTask1     = `"task":"t-abaaaaaaaaaaaaaa"`
)

func TestVerifyLogFinds(t *testing.T) {
	w := newWorld(t)
	all := split(w.exported)
	recs, recpts := all.find(recordLine), all.find(receiptLine)
	task1 := all.find(recordLine, ofTask1)
	if len(recs) != 21 || len(recpts) != 3 || len(task1) != 5 {
		t.Fatalf("the export has %d records, %d receipts, %d records of the second task", len(recs), len(recpts), len(task1))
	}
	last := len(all) - 1
	trusted := VerifyOptions{Trusted: &w.trusted}
	given := func(n int) VerifyOptions { return VerifyOptions{Receipts: [][]byte{w.receipts[n]}} }
	swapped := func(a, b int) lines {
		out := slices.Clone(all)
		out[a], out[b] = out[b], out[a]
		return out
	}
	replaced := func(i int, old, new string) lines {
		out := slices.Clone(all)
		out[i] = strings.Replace(out[i], old, new, 1)
		if out[i] == all[i] {
			t.Fatalf("line %d does not hold %q", i, old)
		}
		return out
	}
	otherTrusted := trustedOf(t, w.otherSite)
	forkTrusted := trustedOf(t, w.rewritten(0, 4, 5, 6))
	cases := []struct {
		name   string
		export []byte
		o      VerifyOptions
		want   []Kind // empty: nothing is wrong
	}{
		{"untouched", w.exported, VerifyOptions{Trusted: &w.trusted, Receipts: w.receipts}, nil},
		{"untouched, an early checkpoint", w.exported, VerifyOptions{Trusted: openBundle(t, w, 0)}, nil},
		{"the checkpoint is cut", all[:last].join(), VerifyOptions{}, []Kind{TailCut}},
		{"cut in a line", w.exported[:len(w.exported)-9], VerifyOptions{}, []Kind{TailCut}},
		{"the last newline is cut", w.exported[:len(w.exported)-1], VerifyOptions{}, []Kind{TailCut}},
		{"the last receipt is cut", all.without(recpts[2]).join(), VerifyOptions{}, []Kind{TailCut}},
		{"the last records are cut", all.without(recs[19:]...).join(), VerifyOptions{}, []Kind{TailCut}},
		{"everything is cut", nil, VerifyOptions{}, []Kind{Malformed, TailCut}},
		{"cut back, a checkpoint was kept", w.early, trusted, []Kind{TailCut}},
		{"cut back, a receipt was kept", w.early, given(2), []Kind{TailCut}},
		{"a record is gone", all.without(recs[3]).join(), VerifyOptions{}, []Kind{Missing}},
		{"the first record is gone", all.without(recs[0]).join(), VerifyOptions{}, []Kind{Missing}},
		{"a task's records are gone", all.without(task1...).join(), VerifyOptions{}, []Kind{Missing, TaskDeleted}},
		{"a task's receipt is gone", all.without(recpts[1]).join(), VerifyOptions{}, []Kind{TaskDeleted}},
		{"the first receipt is gone", all.without(recpts[0]).join(), VerifyOptions{}, []Kind{TaskDeleted}},
		{"a task is gone", all.without(append(task1, recpts[1])...).join(), VerifyOptions{}, []Kind{Missing, TaskDeleted}},
		{"a task never was", export(t, w.rewritten(0, 2)), given(1), []Kind{TaskDeleted, Fork}},
		{"a task never was, a checkpoint was kept", export(t, w.rewritten(0, 2, 4, 5, 6)), trusted, []Kind{Fork}},
		{"a fact is changed", replaced(recs[4], `"allowed":1`, `"allowed":7`).join(), VerifyOptions{}, []Kind{Altered}},
		{"a witness is changed", replaced(recs[2], `"worker"`, `"gateway"`).join(), VerifyOptions{}, []Kind{Altered}},
		{"a record is forged", all.forged(t, recs[4], func(r *Record) { r.Kind = "x" }).join(), VerifyOptions{}, []Kind{Altered}},
		{"the last record is forged", all.forged(t, recs[20], func(r *Record) { r.Kind = "x" }).join(), VerifyOptions{}, []Kind{Altered}},
		{"a record changes its task", all.forged(t, recs[4], func(r *Record) { r.Task = taskID(2) }).join(), VerifyOptions{}, []Kind{Altered}},
		{"a record is doubled", slices.Insert(slices.Clone(all), recs[4], all[recs[4]]).join(), VerifyOptions{}, []Kind{Altered}},
		{"two records change places", swapped(recs[7], recs[8]).join(), VerifyOptions{}, []Kind{Order}},
		{"the first and last change places", swapped(recs[0], recs[20]).join(), VerifyOptions{}, []Kind{Order}},
		{"two receipts change places", swapped(recpts[0], recpts[1]).join(), VerifyOptions{}, []Kind{Order}},
		{"a receipt stands among the records", swapped(recs[9], recpts[0]).join(), VerifyOptions{}, []Kind{Order}},
		{"a receipt's body is changed", replaced(recpts[1], `"denied":2`, `"denied":0`).join(), VerifyOptions{}, []Kind{Altered}},
		{"a receipt's index is changed", replaced(recpts[1], `"leafIndex":1`, `"leafIndex":2`).join(), VerifyOptions{}, []Kind{Altered}},
		{"signed with another key", export(t, w.otherSite), VerifyOptions{}, []Kind{Malformed, WrongKey}},
		{"one receipt of another key", withLine(all, recpts[1], split(export(t, w.otherSite)).find(receiptLine), export(t, w.otherSite)).join(), VerifyOptions{}, []Kind{WrongKey}},
		{"a receipt is not in the log", export(t, w.rewritten(0, 1, 2)), VerifyOptions{Receipts: [][]byte{w.rewritten(5, 1).run(taskID(2))}}, []Kind{NotInLog, Fork}},
		{"another history, a checkpoint was kept", w.exported, VerifyOptions{Trusted: forkTrusted}, []Kind{Fork}},
		{"a checkpoint of another installation", w.exported, VerifyOptions{Trusted: otherTrusted}, []Kind{WrongKey}},
		{"a given receipt of another key", w.exported, VerifyOptions{Receipts: [][]byte{w.otherSite.run(taskID(1))}}, []Kind{WrongKey}},
		{"no header", all[1:].join(), VerifyOptions{}, []Kind{Malformed}},
		{"two headers", slices.Insert(slices.Clone(all), 1, all[0]).join(), VerifyOptions{}, []Kind{Order}},
		{"two checkpoints", append(slices.Clone(all), all[last]).join(), VerifyOptions{}, []Kind{Order}},
		{"an older checkpoint", withLine(all, last, split(w.early).find(`"type":"checkpoint"`), w.early).join(), VerifyOptions{}, []Kind{Altered}},
		{"a line of noise", slices.Insert(slices.Clone(all), 5, "noise").join(), VerifyOptions{}, []Kind{Malformed}},
		{"a member more", replaced(recs[3], `"record":`, `"extra":1,"record":`).join(), VerifyOptions{}, []Kind{Malformed}},
		{"a member twice", replaced(recs[3], `"type":"record"`, `"type":"record","type":"record"`).join(), VerifyOptions{}, []Kind{Malformed}},
		{"a member of another kind", replaced(0, `"type"`, `"receipt":{},"type"`).join(), VerifyOptions{}, []Kind{Malformed}},
		{"white space", replaced(recs[3], `,`, `, `).join(), VerifyOptions{}, []Kind{Malformed}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			report, err := VerifyLog(w.key.Public(), bytes.NewReader(c.export), c.o)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				if report.Err() != nil || report.Records != 21 || report.Receipts != 3 || !slices.Equal(report.Open, []string{taskID(3)}) {
					t.Fatalf("report %+v", report)
				}
				return
			}
			if report.OK() {
				t.Fatal("nothing was found")
			}
			for _, kind := range c.want {
				if !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Kind == kind }) {
					t.Errorf("no finding %q in %v", kind, report.Err())
				}
			}
		})
	}
}

// withLine puts the line of another export at place i.
func withLine(l lines, i int, at []int, other []byte) lines {
	out := slices.Clone(l)
	out[i] = split(other)[at[0]]
	return out
}

func trustedOf(t *testing.T, s *site) *Checkpoint {
	t.Helper()
	note, err := s.log.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCheckpoint(s.key.Public(), []byte(note))
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func openBundle(t *testing.T, w *world, n int) *Checkpoint {
	t.Helper()
	var b Bundle
	if err := json.Unmarshal(w.receipts[n], &b); err != nil {
		t.Fatal(err)
	}
	c, err := ParseCheckpoint(w.key.Public(), []byte(b.Checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestVerifyReceiptFinds(t *testing.T) {
	w := newWorld(t)
	edit := func(change func(*Bundle)) []byte {
		var b Bundle
		if err := json.Unmarshal(w.receipts[1], &b); err != nil {
			t.Fatal(err)
		}
		change(&b)
		raw, err := canonical(b)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	rehash := func(r *Record) {
		var err error
		if r.Hash, err = hashRecord(*r); err != nil {
			t.Fatal(err)
		}
	}
	var first Bundle
	if err := json.Unmarshal(w.receipts[0], &first); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		receipt []byte
		want    Kind
	}{
		{"untouched", w.receipts[1], ""},
		{"unchanged by an edit", edit(func(*Bundle) {}), ""},
		{"the last record is gone", edit(func(b *Bundle) { b.Records = b.Records[:4] }), TailCut},
		{"all records are gone", edit(func(b *Bundle) { b.Records = []Record{} }), TailCut},
		{"the first record is gone", edit(func(b *Bundle) { b.Records = b.Records[1:] }), Missing},
		{"a record is gone", edit(func(b *Bundle) { b.Records = slices.Delete(b.Records, 2, 3) }), Missing},
		{"a record more", edit(func(b *Bundle) { b.Records = append(b.Records, b.Records[4]) }), Altered},
		{"two records change places", edit(func(b *Bundle) { b.Records[1], b.Records[2] = b.Records[2], b.Records[1] }), Order},
		{"a record is altered", edit(func(b *Bundle) { b.Records[3].Facts = json.RawMessage(`{}`) }), Altered},
		{"a record is forged", edit(func(b *Bundle) { b.Records[3].Facts = json.RawMessage(`{}`); rehash(&b.Records[3]) }), Altered},
		{"the last record is forged", edit(func(b *Bundle) { b.Records[4].Facts = json.RawMessage(`{}`); rehash(&b.Records[4]) }), Altered},
		{"records of another task", edit(func(b *Bundle) { b.Records = first.Records }), Altered},
		{"another state", edit(func(b *Bundle) { b.Body.State = "failed" }), Altered},
		{"another requester", edit(func(b *Bundle) { b.Body.RequestedBy = "bob" }), Altered},
		{"no grants", edit(func(b *Bundle) { b.Body.Grants = []Reach{} }), Altered},
		{"an approval", edit(func(b *Bundle) { b.Body.Approvals = []Asked{{Record: 1}} }), Altered},
		{"something handed over", edit(func(b *Bundle) { b.Body.HandedOver = []HandedOver{{Record: 1}} }), Altered},
		{"another task", edit(func(b *Bundle) { b.Body.Task = taskID(7) }), Altered},
		{"the note of another task", edit(func(b *Bundle) { b.Note = first.Note }), Altered},
		{"a checkpoint as note", edit(func(b *Bundle) { b.Note = b.Checkpoint }), Altered},
		{"a note as checkpoint", edit(func(b *Bundle) { b.Checkpoint = b.Note }), Malformed},
		{"a note's text is altered", edit(func(b *Bundle) { b.Note = strings.Replace(b.Note, "sha256:", "sha255:", 1) }), Altered},
		{"no note", edit(func(b *Bundle) { b.Note = "" }), Malformed},
		{"a second signature", edit(func(b *Bundle) { b.Note += "\u2014 other AAAAAAAAAA==\n" }), Malformed},
		{"another index", edit(func(b *Bundle) { b.LeafIndex = 0 }), Altered},
		{"another proof", edit(func(b *Bundle) { b.Proof = tlog.RecordProof{tlog.Hash{1}} }), NotInLog},
		{"no proof", edit(func(b *Bundle) { b.Proof = tlog.RecordProof{} }), NotInLog},
		{"an earlier checkpoint", edit(func(b *Bundle) { b.Checkpoint = first.Checkpoint }), Altered},
		{"another format", edit(func(b *Bundle) { b.Format = "cofferdam-receipt/2" }), Malformed},
		{"another key", w.otherSite.run(taskID(1)), WrongKey},
		{"empty", nil, Malformed},
		{"half", w.receipts[1][:300], Malformed},
		{"two", append(slices.Clone(w.receipts[1]), w.receipts[1]...), Malformed},
		{"white space behind", append(slices.Clone(w.receipts[1]), " \n"...), Malformed},
		{"deep", []byte(strings.Repeat("[", 100000)), Malformed},
		{"other case", bytes.Replace(w.receipts[1], []byte(`"format"`), []byte(`"Format"`), 1), Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := VerifyReceipt(w.key.Public(), c.receipt)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if report.Err() != nil || report.Task != taskID(1) || report.Checkpoint == nil {
					t.Fatalf("report %+v", report)
				}
				return
			}
			if !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Kind == c.want }) {
				t.Errorf("no finding %q in %v", c.want, report.Err())
			}
		})
	}
}

func TestVerifyNeedsAKey(t *testing.T) {
	w := newWorld(t)
	for _, vkey := range []string{"", "x", "PRIVATE+KEY+a+b+c", w.key.Public() + "x", strings.ToUpper(w.key.Public())} {
		_, err1 := VerifyReceipt(vkey, w.receipts[0])
		_, err2 := VerifyLog(vkey, bytes.NewReader(w.exported), VerifyOptions{})
		_, err3 := ParseCheckpoint(vkey, nil)
		if err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("the key %q was taken: %v, %v, %v", vkey, err1, err2, err3)
		}
	}
	if _, err := VerifyLog(w.key.Public(), broken1{}, VerifyOptions{}); err == nil {
		t.Error("an unreadable export was verified")
	}
	if report, err := VerifyReceipt(w.key.Public()+"\n", w.receipts[0]); err != nil || !report.OK() {
		t.Errorf("a key with a newline: %v, %v", err, report.Err())
	}
}

type broken1 struct{}

func (broken1) Read([]byte) (int, error) { return 0, errors.New("the disk broke") }

// TestNoiseIsBounded shows that a hostile export gives a short report.
func TestNoiseIsBounded(t *testing.T) {
	s := newSite(t)
	report, err := VerifyLog(s.key.Public(), strings.NewReader(strings.Repeat("x\n", 10000)), VerifyOptions{})
	if err != nil || report.OK() || len(report.Findings) > maxFindings || report.Omitted == 0 {
		t.Errorf("%v, %d findings, %d omitted", err, len(report.Findings), report.Omitted)
	}
}

func TestStrengthOrdersWitnesses(t *testing.T) {
	all := map[string]int{ControlPlane: 4, Gateway: 3, Worker: 2, Guest: 1, "": 0, "agent": 0}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if got := Strength(name); got != all[name] {
			t.Errorf("Strength(%q) = %d, want %d", name, got, all[name])
		}
	}
}
