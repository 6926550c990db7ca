package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Hash is a hash of the log's tree.
type Hash = tlog.Hash

// ParseHash reads what Hash.String gives.
func ParseHash(text string) (Hash, error) { return tlog.ParseHash(text) }

// Store keeps records, receipts and the log's hashes. Implemented by store.
type Store interface {
	// Append runs f in one transaction that no other writer shares, in this or
	// any other process; it is kept whole when f returns nil and not at all
	// otherwise.
	Append(ctx context.Context, f func(Tx) error) error
	// Read runs f on one view that does not change.
	Read(ctx context.Context, f func(View) error) error
}

// View reads the account. Lists are in order; yield's error ends them.
type View interface {
	// Last is the installation's newest record; ok is false when there is none.
	Last() (r Record, ok bool, err error)
	// LastOf is the task's newest record.
	LastOf(taskID string) (r Record, ok bool, err error)
	Records(yield func(Record) error) error
	RecordsOf(taskID string, yield func(Record) error) error
	// Receipt is the task's receipt; nil when it has none.
	Receipt(taskID string) ([]byte, error)
	Receipts(yield func(bundle []byte) error) error
	// Leaves is the number of receipts in the log.
	Leaves() (int64, error)
	// ReadHashes gives stored hashes of the log; it makes View a tlog.HashReader.
	ReadHashes(indexes []int64) ([]Hash, error)
	// Account is what the rows say about the task.
	Account(taskID string) (Account, error)
}

// Tx is a View that may append.
type Tx interface {
	View
	// Known says whether the task has a record with the key.
	Known(taskID, key string) (bool, error)
	AddRecord(Record) error
	// AddReceipt keeps the receipt and the log's hashes, the first of which has
	// the index first.
	AddReceipt(taskID string, leaf int64, bundle []byte, first int64, hashes []Hash) error
}

// Account is what the control plane's rows say about a task.
type Account struct {
	Task      task.Task // with Spec
	Stages    []StageRun
	Sandboxes []SandboxUse
	StartedAt time.Time // zero: it never ran
}

// Options say what a Log needs. Store and Key are required.
type Options struct {
	Store Store
	Key   *Key
	Now   func() time.Time // nil: time.Now
}

// Log appends records and makes receipts. It is safe for concurrent use, also
// by several processes on one store.
type Log struct {
	store Store
	now   func() time.Time
	step  func(name string) error // before each step of a rotation; tests stop there

	mu  sync.RWMutex // held for reading while something is signed
	key *Key
}

// Open checks that the account in the store belongs to the key and that its
// newest record is whole, and returns the Log.
func Open(ctx context.Context, o Options) (*Log, error) {
	if o.Store == nil || o.Key == nil {
		return nil, errors.New("audit: store and key are required")
	}
	l := &Log{store: o.Store, key: o.Key, now: o.Now, step: func(string) error { return nil }}
	if l.now == nil {
		l.now = time.Now
	}
	if err := o.Store.Read(ctx, l.check); err != nil {
		return nil, err
	}
	return l, nil
}

// Key is the verifier key that receipts and exports are checked with.
func (l *Log) Key() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.key.Public()
}

// Former are the verifier keys that signed before Key, the oldest first.
func (l *Log) Former() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.key.Former()
}

func (l *Log) check(v View) error {
	if _, err := lastRecord(v.Last()); err != nil {
		return err
	}
	n, err := v.Leaves()
	if err != nil || n == 0 {
		return err
	}
	stop := errors.New("one is enough")
	err = v.Receipts(func(raw []byte) error {
		var b Bundle
		if err := decodeCanonical(raw, &b); err != nil {
			return broken("the first receipt can't be read", err)
		}
		set, err := newKeySet(l.key.all())
		if err != nil {
			return err
		}
		if _, _, bad := openNote(set, b.Note); bad != nil {
			return broken("the receipts were signed with another key than keys/audit.key; put the old key file back", bad)
		}
		return stop
	})
	if errors.Is(err, stop) {
		return nil
	}
	return err
}

// Record appends a fact about the task. The same task and key again changes
// nothing, whatever the rest says. facts must encode to a JSON object; it must
// hold no secret, and a prompt only by digest.
func (l *Log) Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error {
	r := Record{Task: taskID, Key: key, Kind: kind, SeenBy: seenBy, Time: l.now().UTC().Round(0)}
	if key == "" || kind == "" || Strength(seenBy) == 0 {
		return task.Fail(task.InfraInternal, "an audit record needs a key, a kind and a known witness", fmt.Errorf("key %q, kind %q, seen by %q", key, kind, seenBy))
	}
	raw, err := canonicalFacts(facts)
	if err != nil {
		return task.Fail(task.InfraInternal, "a fact can't be recorded", fmt.Errorf("record %q of %q: %w", key, taskID, err))
	}
	r.Facts = raw
	return l.store.Append(ctx, func(tx Tx) error { return appendRecord(tx, r) })
}

func appendRecord(tx Tx, r Record) error {
	known, err := tx.Known(r.Task, r.Key)
	if err != nil || known {
		return err
	}
	last, err := lastRecord(tx.Last())
	if err != nil {
		return err
	}
	lastOf, err := lastRecord(tx.LastOf(r.Task))
	if err != nil {
		return err
	}
	r.Seq, r.Prev = last.Seq+1, last.Hash
	r.TaskSeq, r.TaskPrev = lastOf.TaskSeq+1, lastOf.Hash
	if r.Hash, err = hashRecord(r); err != nil {
		return err
	}
	return tx.AddRecord(r)
}

// lastRecord checks a chain's end before anything is built upon it. The zero
// record stands before the first.
func lastRecord(r Record, ok bool, err error) (Record, error) {
	if err != nil {
		return Record{}, err
	}
	if !ok {
		return Record{Hash: zeroDigest}, nil
	}
	if err := checkRecord(r); err != nil {
		return Record{}, broken(fmt.Sprintf("audit record %d was changed", r.Seq), err)
	}
	return r, nil
}

func broken(text string, err error) error {
	return task.Fail(task.InfraStorage, "the audit in the database is damaged: "+text, err)
}
