package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Who saw a fact.
const (
	ControlPlane = "control plane"
	Gateway      = "gateway"
	Worker       = "worker"
	Guest        = "guest"
)

// KindEnded is the kind of the record that says how a task ended: its facts
// hold "state" and "reason".
const KindEnded = "task.ended"

// zeroDigest stands before the first record of a chain.
const zeroDigest = task.Digest("sha256:0000000000000000000000000000000000000000000000000000000000000000")

// Strength orders witnesses: the higher, the more a fact may be believed; 0 is
// nobody we know.
func Strength(seenBy string) int {
	switch seenBy {
	case ControlPlane:
		return 4
	case Gateway:
		return 3
	case Worker:
		return 2
	case Guest:
		return 1
	}
	return 0
}

// Record is one fact. Its hash covers every other field.
type Record struct {
	Seq      int64           `json:"seq"`     // in the installation, from 1, without gaps
	Task     string          `json:"task"`    // empty: about the installation
	TaskSeq  int64           `json:"taskSeq"` // among the records of the task, from 1, without gaps
	Key      string          `json:"key"`     // makes it once within the task
	Time     time.Time       `json:"time"`    // UTC
	Kind     string          `json:"kind"`
	SeenBy   string          `json:"seenBy"`
	Facts    json.RawMessage `json:"facts"`    // a canonical JSON object
	Prev     task.Digest     `json:"prev"`     // hash of the record before it in the installation
	TaskPrev task.Digest     `json:"taskPrev"` // hash of the record before it of the same task
	Hash     task.Digest     `json:"hash"`
}

// hashRecord computes the hash that belongs into r.
func hashRecord(r Record) (task.Digest, error) {
	r.Hash = ""
	raw, err := canonical(r)
	if err != nil {
		return "", fmt.Errorf("record %d: %w", r.Seq, err)
	}
	return digest("audit record v1", raw), nil
}

// checkRecord says what is wrong with r by itself.
func checkRecord(r Record) error {
	if r.Seq < 1 || r.TaskSeq < 1 {
		return errors.New("sequence numbers start at 1")
	}
	if Strength(r.SeenBy) == 0 {
		return fmt.Errorf("%q is not a witness", r.SeenBy)
	}
	if r.Kind == "" || r.Key == "" {
		return errors.New("kind and key are empty")
	}
	want, err := hashRecord(r)
	if err != nil {
		return err
	}
	if want != r.Hash {
		return errors.New("its content does not match its hash")
	}
	return nil
}
