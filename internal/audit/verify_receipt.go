package audit

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// VerifyReceipt checks a receipt with the installation's public keys, one a line,
// which must come from elsewhere. The receipt may end with one newline. The error says
// that the key can't be used; what is wrong with the receipt is in the report.
func VerifyReceipt(vkeys string, bundle []byte) (Report, error) {
	v, err := newKeySet(vkeys)
	if err != nil {
		return Report{}, err
	}
	report := Report{Origin: v.Name(), Findings: []Finding{}}
	opened := openReceipt(v, bytes.TrimSuffix(bundle, []byte("\n")), &report)
	if opened == nil {
		return report, nil
	}
	report.Task, report.Body = opened.Body.Task, &opened.Body
	report.Records, report.Receipts = int64(len(opened.Records)), 1
	report.Checkpoint, report.Note = &opened.checkpoint, opened.Checkpoint
	report.Keys = []string{opened.signer}
	return report, nil
}

// receipt is a bundle that could be read, with its checkpoint.
type receipt struct {
	Bundle
	checkpoint Checkpoint
	signer     string // the key, by its hash
}

// openReceipt reads a bundle and adds what is wrong with it to the report; nil
// when it can't be read or has no valid signature.
func openReceipt(v *keySet, raw []byte, report *Report) *receipt {
	var r receipt
	if err := decodeCanonical(raw, &r.Bundle); err != nil {
		report.addf("receipt", Malformed, "%v", err)
		return nil
	}
	where := "receipt of " + r.Body.Task
	if r.Format != bundleFormat {
		report.addf(where, Malformed, "its format %q is not %q", r.Format, bundleFormat)
		return nil
	}
	text, signer, bad := openNote(v, r.Note)
	if bad != nil {
		report.add(where, bad)
		return nil
	}
	r.signer = signer
	body, err := canonical(r.Body)
	if err != nil {
		report.addf(where, Malformed, "%v", err)
		return nil
	}
	if text != receiptText(v.Name(), r.Body.Task, digest("receipt body v1", body)) {
		report.addf(where, Altered, "its body is not the one that was signed")
		return nil
	}
	checkBody(r.Bundle, where, report)
	checkInclusion(v, &r, where, report)
	return &r
}

// checkBody compares a body, whose signature is good, with the records.
func checkBody(b Bundle, where string, report *Report) {
	n := int64(len(b.Records))
	switch {
	case n < b.Body.Records:
		report.addf(where, TailCut, "it was signed over %d records and holds %d", b.Body.Records, n)
	case n > b.Body.Records:
		report.addf(where, Altered, "it was signed over %d records and holds %d", b.Body.Records, n)
	}
	if bad := checkTaskChain(b.Body.Task, b.Records); bad != nil {
		report.add(where, bad)
		return
	}
	head := zeroDigest
	if n > 0 {
		head = b.Records[n-1].Hash
	}
	if head != b.Body.Head && n == b.Body.Records {
		report.addf(where, Altered, "its records end with %s, but %s was signed", head, b.Body.Head)
	}
	if e, ok := endOf(b.Records); ok && n == b.Body.Records && (e.State != b.Body.State || e.Reason != b.Body.Reason) {
		report.addf(where, Altered, "it says that the task ended as %s, its records say %s", b.Body.State, e.State)
	}
	same := func(a, b Reach) bool {
		rules := bytes.Equal(a.Rules, b.Rules)
		a.Rules, b.Rules = nil, nil
		return rules && reflect.DeepEqual(a, b)
	}
	if n == b.Body.Records && !slices.EqualFunc(b.Body.Grants, grantsOf(b.Records), same) {
		report.addf(where, Altered, "its grants are not those of its records")
	}
	if n == b.Body.Records && !slices.EqualFunc(b.Body.Approvals, askedOf(b.Records), equalAsked) {
		report.addf(where, Altered, "what it says was asked of persons is not what its records say")
	}
	if n == b.Body.Records && !reflect.DeepEqual(b.Body.Used, usedOf(b.Records)) {
		report.addf(where, Altered, "what it says of models is not what its records say")
	}
	if n == b.Body.Records && !sameVerified(b) {
		report.addf(where, Altered, "what it says was verified is not what its records say")
	}
	if n == b.Body.Records && !slices.EqualFunc(b.Body.HandedOver, handedOf(b.Records), equalHanded) {
		report.addf(where, Altered, "what it says was handed over is not what its records say")
	}
	if n == b.Body.Records && b.Body.Reached != nil && !slices.Equal(b.Body.Reached, reachedOf(b.Records)) {
		report.addf(where, Altered, "what it says was reached is not what its records say")
	}
	if n == b.Body.Records && b.Body.Lent != nil && !sameLent(b.Body.Lent, lentOf(b.Records)) {
		report.addf(where, Altered, "what it says was lent is not what its records say")
	}
}

func checkInclusion(v *keySet, r *receipt, where string, report *Report) {
	var bad *Finding
	if r.checkpoint, bad = openCheckpoint(v, r.Checkpoint); bad != nil {
		report.add(where+", its checkpoint", bad)
		return
	}
	if r.checkpoint.Key != r.signer {
		report.addf(where, WrongKey, "it was signed by the key %s and its checkpoint by %s", r.signer, r.checkpoint.Key)
		return
	}
	if r.checkpoint.Size != r.LeafIndex+1 {
		report.addf(where, Altered, "it is leaf %d, but its checkpoint is of %d leaves", r.LeafIndex, r.checkpoint.Size)
		return
	}
	leaf := tlog.RecordHash([]byte(r.Note))
	if err := tlog.CheckRecord(r.Proof, r.checkpoint.Size, r.checkpoint.Root, r.LeafIndex, leaf); err != nil {
		report.addf(where, NotInLog, "its proof does not lead to the root of its checkpoint")
	}
	for _, rec := range r.Records {
		if rec.Seq > r.checkpoint.Records {
			report.addf(where, Altered, "it holds record %d, but its checkpoint is of %d records", rec.Seq, r.checkpoint.Records)
			return
		}
	}
}

// checkTaskChain says what is wrong with the records of one task.
func checkTaskChain(taskID string, records []Record) *Finding {
	prev, seq := zeroDigest, int64(0)
	for i, r := range records {
		if r.Task != taskID {
			return found(Altered, fmt.Sprintf("record %d belongs to %q", r.Seq, r.Task))
		}
		if err := checkRecord(r); err != nil {
			return found(Altered, fmt.Sprintf("record %d of the task: %v", i+1, err))
		}
		if r.TaskSeq != int64(i)+1 {
			return misplaced(records, i)
		}
		if r.TaskPrev != prev || r.Seq <= seq {
			return found(Altered, fmt.Sprintf("record %d of the task does not follow the one before it", i+1))
		}
		prev, seq = r.Hash, r.Seq
	}
	return nil
}

// misplaced tells records in another order from records that are gone.
func misplaced(records []Record, at int) *Finding {
	seen := map[int64]bool{}
	for _, r := range records {
		seen[r.TaskSeq] = true
	}
	for want := int64(1); want <= int64(len(records)); want++ {
		if !seen[want] {
			return found(Missing, fmt.Sprintf("record %d of the task is missing", want))
		}
	}
	return found(Order, fmt.Sprintf("record %d of the task stands at place %d", records[at].TaskSeq, at+1))
}
