package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/cofferdam/cofferdam/internal/task"
)

// bundleFormat names the receipt's format; a change of meaning changes it.
const bundleFormat = "cofferdam-receipt/1"

// Bundle is a receipt as it is handed on: everything needed to verify it but
// the key. It is written in canonical JSON and in no other spelling.
type Bundle struct {
	Format     string           `json:"format"`
	Body       Body             `json:"body"`
	Note       string           `json:"note"`    // signs the task's id and the body's digest
	Records    []Record         `json:"records"` // all of the task's, in order
	LeafIndex  int64            `json:"leafIndex"`
	Proof      tlog.RecordProof `json:"proof"`      // the note is leaf LeafIndex of the tree in Checkpoint
	Checkpoint string           `json:"checkpoint"` // of the log of LeafIndex+1 leaves
}

// Body is the account of one task. It holds no prompt, no command, no output
// and no secret; what was asked is there by digest.
type Body struct {
	Task         string            `json:"task"`
	RequestedBy  string            `json:"requestedBy"`
	Repo         string            `json:"repo"` // without any user information
	Ref          string            `json:"ref"`
	Commit       string            `json:"commit"`
	SpecDigest   task.Digest       `json:"specDigest"`
	PolicyDigest task.Digest       `json:"policyDigest"`
	Worker       string            `json:"worker"`
	State        task.State        `json:"state"`
	Reason       task.Reason       `json:"reason"`
	Attempts     int               `json:"attempts"`
	Stages       []StageRun        `json:"stages"` // every run of every attempt
	Sandboxes    []SandboxUse      `json:"sandboxes"`
	Grants       []Reach           `json:"grants"` // what was reachable, from the records
	Outputs      []task.Output     `json:"outputs"`
	Egress       EgressCount       `json:"egress"`
	Actions      []task.Action     `json:"actions"`
	Approvals    []Asked           `json:"approvals"`            // what was asked of persons, from the records
	Leases       []json.RawMessage `json:"leases"`               // always empty: what was lent is in Lent
	Reached      []Reached         `json:"reached,omitzero"`     // from the records; absent in receipts of before it was counted
	Lent         []Lent            `json:"lent,omitzero"`        // the same
	HandedOver   []HandedOver      `json:"handedOver,omitempty"` // what was seen inside, from the records; absent: nothing
	Used         *Used             `json:"used,omitempty"`       // of models, from the records; absent: none
	Verified     *Verified         `json:"verified,omitempty"`   // of its patch, from the records; absent: nothing
	CreatedAt    time.Time         `json:"createdAt"`
	StartedAt    *time.Time        `json:"startedAt"` // null: it never ran
	EndedAt      time.Time         `json:"endedAt"`
	Records      int64             `json:"records"` // how many records the task has
	Head         task.Digest       `json:"head"`    // hash of the last of them
}

// StageRun is one run of one stage.
type StageRun struct {
	Attempt   int             `json:"attempt"`
	Name      task.StageName  `json:"name"`
	State     task.StageState `json:"state"`
	Reason    task.Reason     `json:"reason"`
	Sandbox   string          `json:"sandbox"`
	ExitCode  *int            `json:"exitCode"`
	StartedAt *time.Time      `json:"startedAt"`
	EndedAt   *time.Time      `json:"endedAt"`
}

// SandboxUse is one sandbox the task had.
type SandboxUse struct {
	ID      string `json:"id"`
	Role    string `json:"role"`
	Network bool   `json:"network"`
}

// Reach is what one stage in one sandbox could reach.
type Reach struct {
	Record       int64           `json:"record"` // the task's record that says so
	Stage        task.StageName  `json:"stage"`
	Sandbox      string          `json:"sandbox"`
	PolicyDigest task.Digest     `json:"policyDigest"`
	Rules        json.RawMessage `json:"rules"` // a list of task.Rule, as recorded
}

// EgressCount counts what passed the gateway, as the gateway recorded it.
type EgressCount struct {
	Allowed  int   `json:"allowed"`
	Denied   int   `json:"denied"`
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
}

// Receipt signs the task's account and enters it into the log, once; it returns
// the receipt's bytes, the same ones at every call. The task must have ended,
// by a record of kind KindEnded or by its row; the record comes first, so that
// a task whose row says it ended has its receipt already. Records added later
// are in the chain but not in the receipt.
func (l *Log) Receipt(ctx context.Context, taskID string) ([]byte, error) {
	var bundle []byte
	read := func(v View) (err error) {
		bundle, err = v.Receipt(taskID)
		return err
	}
	if err := l.store.Read(ctx, read); err != nil || bundle != nil {
		return bundle, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	err := l.store.Append(ctx, func(tx Tx) error {
		if err := read(tx); err != nil || bundle != nil {
			return err
		}
		raw, err := l.issue(tx, taskID)
		bundle = raw
		return err
	})
	if err != nil {
		return nil, err
	}
	return bundle, nil
}

func (l *Log) issue(tx Tx, taskID string) ([]byte, error) {
	account, err := tx.Account(taskID)
	if err != nil {
		return nil, err
	}
	b := Bundle{Format: bundleFormat, Records: []Record{}}
	err = tx.RecordsOf(taskID, func(r Record) error {
		b.Records = append(b.Records, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if bad := checkTaskChain(taskID, b.Records); bad != nil {
		return nil, broken("the records of "+taskID+" do not fit together", bad)
	}
	if end, ok := endOf(b.Records); ok {
		account.Task.State, account.Task.Reason, account.Task.EndedAt = end.State, end.Reason, &end.at
	}
	if !account.Task.State.Ended() {
		return nil, task.Fail(task.InfraInternal, "a receipt is made when the task has ended", fmt.Errorf("task %q is %s", taskID, account.Task.State))
	}
	if b.Body, err = newBody(account, b.Records); err != nil {
		return nil, err
	}
	body, err := canonical(b.Body)
	if err != nil {
		return nil, err
	}
	if b.Note, err = l.key.sign(receiptText(l.key.Origin(), taskID, digest("receipt body v1", body))); err != nil {
		return nil, err
	}
	return l.enter(tx, taskID, b)
}

// enter appends the receipt to the log and signs the log as it then is.
func (l *Log) enter(tx Tx, taskID string, b Bundle) ([]byte, error) {
	leaf, err := tx.Leaves()
	if err != nil {
		return nil, err
	}
	hashes, err := tlog.StoredHashes(leaf, []byte(b.Note), tx)
	if err != nil {
		return nil, broken("the log's hashes can't be read", err)
	}
	first := tlog.StoredHashIndex(0, leaf)
	log := withPending(tx, first, hashes)
	root, err := tlog.TreeHash(leaf+1, log)
	if err != nil {
		return nil, broken("the log's hashes can't be read", err)
	}
	proof, err := tlog.ProveRecord(leaf+1, leaf, log)
	if err != nil {
		return nil, broken("the log's hashes can't be read", err)
	}
	last, err := lastRecord(tx.Last())
	if err != nil {
		return nil, err
	}
	b.LeafIndex, b.Proof = leaf, append(tlog.RecordProof{}, proof...)
	check := Checkpoint{Origin: l.key.Origin(), Size: leaf + 1, Root: root, Records: last.Seq, Head: last.Hash}
	if b.Checkpoint, err = l.key.sign(check.text()); err != nil {
		return nil, err
	}
	raw, err := canonical(b)
	if err != nil {
		return nil, err
	}
	// What can't be verified must not be signed: a receipt is made once.
	report, err := VerifyReceipt(l.key.Public(), raw)
	if err = errors.Join(err, report.Err()); err != nil {
		return nil, task.Fail(task.InfraInternal, "the receipt would not verify", err)
	}
	return raw, tx.AddReceipt(taskID, leaf, raw, first, hashes)
}

// withPending reads hashes from pending, whose first index is first, and those
// before it from stored.
func withPending(stored tlog.HashReader, first int64, pending []tlog.Hash) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		var before, places []int64
		for i, index := range indexes {
			if index < first {
				before, places = append(before, index), append(places, int64(i))
				continue
			}
			if index-first >= int64(len(pending)) {
				return nil, fmt.Errorf("hash %d of the log is not there", index)
			}
			out[i] = pending[index-first]
		}
		if len(before) == 0 {
			return out, nil
		}
		old, err := stored.ReadHashes(before)
		if err != nil {
			return nil, err
		}
		for i, h := range old {
			out[places[i]] = h
		}
		return out, nil
	})
}

func newBody(a Account, records []Record) (Body, error) {
	t := a.Task
	spec, err := SpecDigest(t.Spec)
	if err != nil {
		return Body{}, err
	}
	b := Body{
		Task: t.ID, RequestedBy: t.RequestedBy, Repo: withoutUser(t.Repo), Ref: t.Ref, Commit: t.Commit,
		SpecDigest: spec, PolicyDigest: t.PolicyDigest, Worker: t.Worker,
		State: t.State, Reason: t.Reason, Attempts: t.Attempt,
		Stages: append([]StageRun{}, a.Stages...), Sandboxes: append([]SandboxUse{}, a.Sandboxes...),
		Grants: grantsOf(records), HandedOver: handedOf(records), Outputs: append([]task.Output{}, t.Outputs...),
		Egress:  EgressCount{Allowed: t.Usage.EgressAllowed, Denied: t.Usage.EgressDenied, BytesIn: t.Usage.BytesIn, BytesOut: t.Usage.BytesOut},
		Actions: append([]task.Action{}, t.Actions...), Approvals: askedOf(records), Leases: []json.RawMessage{},
		Reached: reachedOf(records), Lent: lentOf(records), Used: usedOf(records), Verified: verifiedOf(records),
		CreatedAt: t.CreatedAt.UTC(), Records: int64(len(records)), Head: zeroDigest,
	}
	for i := range b.Outputs {
		b.Outputs[i].Flags = append([]string{}, b.Outputs[i].Flags...)
	}
	if !a.StartedAt.IsZero() {
		started := a.StartedAt.UTC()
		b.StartedAt = &started
	}
	if t.EndedAt != nil {
		b.EndedAt = t.EndedAt.UTC()
	}
	if len(records) > 0 {
		b.Head = records[len(records)-1].Hash
	}
	return b, nil
}

// ending is how a task ended, as recorded.
type ending struct {
	State  task.State  `json:"state"`
	Reason task.Reason `json:"reason"`
	at     time.Time
}

// endOf reads how the task ended out of its last record that says so.
func endOf(records []Record) (ending, bool) {
	for _, r := range slices.Backward(records) {
		e := ending{at: r.Time}
		if r.Kind == KindEnded && json.Unmarshal(r.Facts, &e) == nil && e.State.Ended() {
			return e, true
		}
	}
	return ending{}, false
}

// grantsOf reads what was reachable out of the records: every record whose
// facts name a sandbox and a list of rules says so, whatever its kind. A
// verifier does the same and compares.
func grantsOf(records []Record) []Reach {
	grants := []Reach{}
	for _, r := range records {
		var facts struct {
			Stage        task.StageName  `json:"stage"`
			Sandbox      string          `json:"sandbox"`
			PolicyDigest task.Digest     `json:"policyDigest"`
			Rules        json.RawMessage `json:"rules"`
		}
		if json.Unmarshal(r.Facts, &facts) != nil || facts.Sandbox == "" || len(facts.Rules) == 0 || facts.Rules[0] != '[' {
			continue
		}
		grants = append(grants, Reach{Record: r.TaskSeq, Stage: facts.Stage, Sandbox: facts.Sandbox, PolicyDigest: facts.PolicyDigest, Rules: facts.Rules})
	}
	return grants
}

// withoutUser removes user information from a repository's name: people write
// tokens there.
func withoutUser(repo string) string {
	if !strings.Contains(repo, "@") {
		return repo
	}
	u, err := url.Parse(repo)
	if err != nil || u.Scheme == "" {
		if i := strings.Index(repo, "://"); i >= 0 {
			// Not a URL we can read: keep nothing that may be user information.
			return repo[:i+3] + repo[strings.LastIndex(repo, "@")+1:]
		}
		return repo
	}
	u.User = nil
	return u.String()
}
