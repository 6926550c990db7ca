package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/cofferdam/cofferdam/internal/task"
)

// memory is a Store that works and forgets at its end.
type memory struct {
	mu       sync.Mutex
	records  []Record
	bundles  [][]byte
	byTask   map[string][]byte
	hashes   map[int64]tlog.Hash
	accounts map[string]Account
}

func newMemory() *memory {
	return &memory{byTask: map[string][]byte{}, hashes: map[int64]tlog.Hash{}, accounts: map[string]Account{}}
}

func (m *memory) Append(_ context.Context, f func(Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := &memory{
		records: slices.Clone(m.records), bundles: slices.Clone(m.bundles), byTask: maps.Clone(m.byTask),
		hashes: maps.Clone(m.hashes), accounts: m.accounts,
	}
	if err := f(memoryTx{next}); err != nil {
		return err
	}
	m.records, m.bundles, m.byTask, m.hashes = next.records, next.bundles, next.byTask, next.hashes
	return nil
}

func (m *memory) Read(_ context.Context, f func(View) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(memoryTx{m})
}

type memoryTx struct{ m *memory }

func (t memoryTx) last(match func(Record) bool) (Record, bool, error) {
	for _, r := range slices.Backward(t.m.records) {
		if match(r) {
			return r, true, nil
		}
	}
	return Record{}, false, nil
}

func (t memoryTx) Last() (Record, bool, error) {
	return t.last(func(Record) bool { return true })
}

func (t memoryTx) LastOf(id string) (Record, bool, error) {
	return t.last(func(r Record) bool { return r.Task == id })
}

func (t memoryTx) Records(yield func(Record) error) error {
	for _, r := range t.m.records {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

func (t memoryTx) RecordsOf(id string, yield func(Record) error) error {
	return t.Records(func(r Record) error {
		if r.Task != id {
			return nil
		}
		return yield(r)
	})
}

func (t memoryTx) Receipt(id string) ([]byte, error) { return t.m.byTask[id], nil }

func (t memoryTx) Receipts(yield func([]byte) error) error {
	for _, b := range t.m.bundles {
		if err := yield(b); err != nil {
			return err
		}
	}
	return nil
}

func (t memoryTx) Leaves() (int64, error) { return int64(len(t.m.bundles)), nil }

func (t memoryTx) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, 0, len(indexes))
	for _, i := range indexes {
		h, ok := t.m.hashes[i]
		if !ok {
			return nil, fmt.Errorf("hash %d is gone", i)
		}
		out = append(out, h)
	}
	return out, nil
}

func (t memoryTx) Account(id string) (Account, error) {
	a, ok := t.m.accounts[id]
	if !ok {
		return a, task.Fail(task.InputNotFound, "no such task", nil)
	}
	return a, nil
}

func (t memoryTx) Known(id, key string) (bool, error) {
	return slices.ContainsFunc(t.m.records, func(r Record) bool { return r.Task == id && r.Key == key }), nil
}

func (t memoryTx) AddRecord(r Record) error {
	t.m.records = append(t.m.records, r)
	return nil
}

func (t memoryTx) AddReceipt(id string, index int64, bundle []byte, first int64, hashes []tlog.Hash) error {
	if index != int64(len(t.m.bundles)) {
		return errors.New("not the next leaf")
	}
	t.m.bundles, t.m.byTask[id] = append(t.m.bundles, bundle), bundle
	for i, h := range hashes {
		t.m.hashes[first+int64(i)] = h
	}
	return nil
}

// site is an installation with an account.
type site struct {
	t     testing.TB
	store *memory
	key   *Key
	log   *Log
}

func newSite(t testing.TB) *site {
	t.Helper()
	key, err := NewKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return siteWith(t, newMemory(), key)
}

func siteWith(t testing.TB, store *memory, key *Key) *site {
	t.Helper()
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	log, err := Open(t.Context(), Options{Store: store, Key: key, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(1234567 * time.Microsecond)
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, store: store, key: key, log: log}
}

func taskID(n int) string {
	return fmt.Sprintf("t-%016s", string([]byte{'a' + byte(n/26%26), 'a' + byte(n%26)})[0:2]+"aaaaaaaaaaaaaa")
}

// record adds a record of the task.
func (s *site) record(id, key, kind, seenBy string, facts any) {
	s.t.Helper()
	if err := s.log.Record(context.Background(), id, key, kind, seenBy, facts); err != nil {
		s.t.Fatal(err)
	}
}

// run records what a task does and returns its receipt.
func (s *site) run(id string) []byte {
	s.t.Helper()
	s.begin(id)
	return s.end(id)
}

func (s *site) begin(id string) {
	s.t.Helper()
	s.record(id, "admitted", "task.admitted", ControlPlane, map[string]any{"task": id, "limits": map[string]int64{"memory": 4 << 30}})
	s.record(id, "sandbox/1", "sandbox.created", Worker, map[string]any{"sandbox": "sb-aaaaaaaaaaaaaaaa", "kernel": "gvisor systrap"})
	s.record(id, "agent/1", "stage.ended", ControlPlane, map[string]any{
		"stage": "agent", "sandbox": "sb-aaaaaaaaaaaaaaaa", "policyDigest": "sha256:00",
		"rules": []task.Rule{{ID: "agent.network.allow[0]", Host: "proxy.example", Ports: []uint16{443}}},
	})
	s.record(id, "egress/1", "egress.collected", Gateway, map[string]any{"allowed": 1, "denied": 2})
	s.record(id, "said/1", "agent.said", Guest, map[string]any{"text": "fünf < 6 & \u2028 \x7f"})
}

func (s *site) end(id string) []byte {
	s.t.Helper()
	created := time.Date(2026, 3, 1, 12, 0, 0, 120, time.UTC)
	ended, code := created.Add(time.Minute), 0
	s.store.mu.Lock()
	s.store.accounts[id] = Account{
		Task: task.Task{
			ID: id, State: task.Succeeded, RequestedBy: "alice", Repo: "https://alice:hunter2@git.example/r.git", Ref: "main",
			Commit: "0123456789abcdef0123456789abcdef01234567", Worker: "w1", PolicyDigest: "sha256:11", Attempt: 1,
			Spec:      task.Spec{Prompt: "the secret plan", Policy: "version: 1"},
			Outputs:   []task.Output{{Name: "patch", Kind: "patch", Digest: "sha256:22", Size: 12}},
			Usage:     task.Usage{EgressAllowed: 1, EgressDenied: 2, BytesIn: 3, BytesOut: 4},
			CreatedAt: created, EndedAt: &ended,
		},
		Stages:    []StageRun{{Attempt: 1, Name: task.Agent, State: task.StageSucceeded, Sandbox: "sb-aaaaaaaaaaaaaaaa", ExitCode: &code, StartedAt: &created, EndedAt: &ended}},
		Sandboxes: []SandboxUse{{ID: "sb-aaaaaaaaaaaaaaaa", Role: "agent", Network: true}},
		StartedAt: created.Add(time.Second),
	}
	s.store.mu.Unlock()
	raw, err := s.log.Receipt(context.Background(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}
