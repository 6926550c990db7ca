package audit

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// link is what verification keeps of one record.
type link struct {
	seq, taskSeq         int64
	task                 string
	hash, prev, taskPrev [32]byte
}

// record checks a record by itself and keeps its link.
func (c *logCheck) record(r Record) {
	if err := checkRecord(r); err != nil {
		c.report.addf(fmt.Sprintf("record %d", r.Seq), Altered, "%v", err)
	}
	hash, ok1 := rawDigest(r.Hash)
	prev, ok2 := rawDigest(r.Prev)
	taskPrev, ok3 := rawDigest(r.TaskPrev)
	if !ok1 || !ok2 || !ok3 {
		c.report.addf(fmt.Sprintf("record %d", r.Seq), Malformed, "one of its hashes is not a SHA-256 digest")
	}
	name, ok := c.names[r.Task]
	if !ok {
		name = strings.Clone(r.Task)
		c.names[name] = name
	}
	c.chain = append(c.chain, link{seq: r.Seq, taskSeq: r.TaskSeq, task: name, hash: hash, prev: prev, taskPrev: taskPrev})
	c.linked = false
}

func rawDigest(d task.Digest) (out [32]byte, ok bool) {
	if !validDigest(d) {
		return out, false
	}
	_, err := hex.Decode(out[:], []byte(d)[len("sha256:"):])
	return out, err == nil
}

func textDigest(h [32]byte) task.Digest {
	return task.Digest("sha256:" + hex.EncodeToString(h[:]))
}

// link checks the chain as a whole and leaves it sorted by sequence number.
func (c *logCheck) link() {
	if c.linked {
		return
	}
	c.linked = true
	bySeq := func(a, b link) int { return cmp.Compare(a.seq, b.seq) }
	if !slices.IsSortedFunc(c.chain, bySeq) {
		for i := 1; i < len(c.chain); i++ {
			if c.chain[i].seq < c.chain[i-1].seq {
				c.report.addf(fmt.Sprintf("record %d", c.chain[i].seq), Order, "it stands behind record %d", c.chain[i-1].seq)
				break
			}
		}
		slices.SortStableFunc(c.chain, bySeq)
	}
	last := link{}
	lastOf := map[string]link{}
	for _, l := range c.chain {
		c.follow(last, lastOf[l.task], l)
		last, lastOf[l.task] = l, l
	}
}

// follow checks that next stands behind last in the installation's chain and
// behind lastOf in its task's.
func (c *logCheck) follow(last, lastOf, next link) {
	where := fmt.Sprintf("record %d", next.seq)
	switch {
	case next.seq == last.seq:
		c.report.addf(where, Altered, "there is more than one record with this number")
		return
	case next.seq > last.seq+1:
		if gap := next.seq - last.seq - 1; gap > int64(c.unread) {
			c.report.addf(where, Missing, "the %d records before it, from %d on, are missing", gap, last.seq+1)
		}
	case next.prev != last.hash:
		c.report.addf(where, Altered, "it does not follow record %d: one of the two was altered", last.seq)
	}
	switch {
	case next.taskSeq > lastOf.taskSeq+1:
		if gap := next.taskSeq - lastOf.taskSeq - 1; gap > int64(c.unread) {
			c.report.addf(where, Missing, "%d records of %s before it are missing", gap, taskName(next.task))
		}
	case next.taskSeq != lastOf.taskSeq+1:
		c.report.addf(where, Order, "it is number %d of %s and stands behind number %d", next.taskSeq, taskName(next.task), lastOf.taskSeq)
	case next.taskPrev != lastOf.hash:
		c.report.addf(where, Altered, "it does not follow the record before it of %s: one of the two was altered", taskName(next.task))
	}
}

func taskName(id string) string {
	if id == "" {
		return "the installation"
	}
	return "task " + id
}

func (c *logCheck) lastSeq() int64 {
	if len(c.chain) == 0 {
		return 0
	}
	return c.chain[len(c.chain)-1].seq
}

// hashOf is the hash of the record with the number; the zero hash is that of
// number 0.
func (c *logCheck) hashOf(seq int64) (hash [32]byte, ok bool) {
	if seq == 0 {
		return hash, true
	}
	i, ok := slices.BinarySearchFunc(c.chain, seq, func(l link, seq int64) int { return cmp.Compare(l.seq, seq) })
	if !ok {
		return hash, false
	}
	return c.chain[i].hash, true
}
