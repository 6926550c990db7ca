package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// leaf is what verification keeps of one receipt in an export.
type leaf struct {
	index      int64
	task       string
	hash       tlog.Hash
	checkpoint Checkpoint
	signer     string // the key, by its hash
}

// tree is the log that the receipts of an export give, without gaps from the
// first on.
type tree struct {
	size   int64
	stored []tlog.Hash
}

// ReadHashes makes tree a tlog.HashReader.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index < 0 || index >= int64(len(t.stored)) {
			return nil, errors.New("beyond the log")
		}
		out[i] = t.stored[index]
	}
	return out, nil
}

func (t *tree) add(h tlog.Hash) error {
	hashes, err := tlog.StoredHashesForRecordHash(t.size, h, t)
	if err != nil {
		return err
	}
	t.stored, t.size = append(t.stored, hashes...), t.size+1
	return nil
}

// receipt checks a receipt of the export by itself and against the chain.
func (c *logCheck) receipt(raw []byte) {
	r := openReceipt(c.verifier, raw, &c.report)
	if r == nil {
		c.unsigned++
		return
	}
	where := "receipt of " + r.Body.Task
	gone := 0
	for _, rec := range r.Records {
		hash, ok := c.hashOf(rec.Seq)
		switch {
		case !ok:
			gone++
		case textDigest(hash) != rec.Hash:
			c.report.addf(where, Altered, "its record %d is not the one in the chain", rec.Seq)
		}
	}
	if gone > 0 && gone == len(r.Records) {
		c.report.addf(where, TaskDeleted, "all of its %d records are gone from the chain", gone)
	} else if gone > c.unread {
		c.report.addf(where, Missing, "%d of its records are gone from the chain", gone)
	}
	c.leaves = append(c.leaves, leaf{index: r.LeafIndex, task: r.Body.Task, hash: tlog.RecordHash([]byte(r.Note)), checkpoint: r.checkpoint, signer: r.signer})
}

// grow builds the tree from the receipts and says what is wrong with their
// order.
func (c *logCheck) grow() {
	byIndex := func(a, b leaf) int { return cmp.Compare(a.index, b.index) }
	if !slices.IsSortedFunc(c.leaves, byIndex) {
		c.report.addf("receipts", Order, "they do not stand in the log's order")
		slices.SortStableFunc(c.leaves, byIndex)
	}
	seen, next, whole := map[string]bool{}, int64(0), true
	for _, l := range c.leaves {
		where := "receipt of " + l.task
		if seen[l.task] {
			c.report.addf(where, Fork, "the task has more than one receipt")
		}
		seen[l.task] = true
		switch {
		case l.index < next:
			c.report.addf(where, Fork, "there is more than one receipt at index %d", l.index)
			whole = false
		case l.index > next:
			if gap := l.index - next; gap > int64(c.unsigned) {
				c.report.addf(where, TaskDeleted, "the %d receipts before it, from index %d on, are missing: their tasks were deleted", gap, next)
			}
			whole = false
		}
		next = l.index + 1
		if !whole {
			continue
		}
		if err := c.tree.add(l.hash); err != nil {
			c.report.addf(where, Malformed, "the log can't be built: %v", err)
			whole = false
		}
	}
}

// size is how many receipts the log has by the indexes in the export.
func (c *logCheck) size() int64 {
	if len(c.leaves) == 0 {
		return 0
	}
	return c.leaves[len(c.leaves)-1].index + 1
}

// against compares the export with a checkpoint whose signature is good. A
// difference is of the kind: altered for one that came with the export, a fork
// for one that was kept outside.
func (c *logCheck) against(where string, check Checkpoint, kind Kind) {
	switch {
	case check.Size > c.size()+int64(c.unsigned):
		c.report.addf(where, TailCut, "it was signed over %d receipts, and the export holds %d: the end is gone", check.Size, c.size())
	case check.Size <= c.tree.size:
		if root, err := tlog.TreeHash(check.Size, &c.tree); err != nil || root != check.Root {
			c.report.addf(where, kind, "its root over %d receipts is not that of the export's receipts", check.Size)
		}
	}
	hash, ok := c.hashOf(check.Records)
	switch {
	case check.Records > c.lastSeq()+int64(c.unread):
		c.report.addf(where, TailCut, "it was signed over %d records, and the export ends with record %d: the end is gone", check.Records, c.lastSeq())
	case ok && textDigest(hash) != check.Head:
		c.report.addf(where, kind, "record %d is not the one it was signed over", check.Records)
	}
}

// trusted compares the export with a checkpoint kept outside, and proves that
// one log is the other's beginning.
func (c *logCheck) trusted(check Checkpoint) {
	const where = "the trusted checkpoint"
	if check.Origin != c.verifier.Name() {
		c.report.addf(where, WrongKey, "it is of the installation %q", check.Origin)
		return
	}
	c.against(where, check, Fork)
	if c.final == nil || check.Size < 1 || check.Size > c.final.Size || c.final.Size > c.tree.size {
		return
	}
	proof, err := tlog.ProveTree(c.final.Size, check.Size, &c.tree)
	if err == nil {
		err = tlog.CheckTree(proof, c.final.Size, c.final.Root, check.Size, check.Root)
	}
	if err != nil {
		c.report.addf(where, Fork, "the export's log does not continue it")
	}
}

// beside checks that the log holds a receipt that was kept outside.
func (c *logCheck) beside(raw []byte) {
	before := len(c.report.Findings)
	r := openReceipt(c.verifier, bytes.TrimSuffix(raw, []byte("\n")), &c.report)
	for i := before; i < len(c.report.Findings); i++ {
		c.report.Findings[i].Where = "given " + c.report.Findings[i].Where
	}
	if r == nil {
		return
	}
	where := fmt.Sprintf("given receipt of %s", r.Body.Task)
	if r.LeafIndex >= c.size()+int64(c.unsigned) {
		c.report.addf(where, TailCut, "it is receipt %d of the log, and the export holds %d: the end is gone", r.LeafIndex, c.size())
		return
	}
	hash := tlog.RecordHash([]byte(r.Note))
	if !slices.ContainsFunc(c.leaves, func(l leaf) bool { return l.index == r.LeafIndex && l.hash == hash }) {
		kind := TaskDeleted
		if slices.ContainsFunc(c.leaves, func(l leaf) bool { return l.task == r.Body.Task }) {
			kind = NotInLog
		}
		c.report.addf(where, kind, "the log does not hold it")
	}
	c.against(where+", its checkpoint", r.checkpoint, Fork)
}
