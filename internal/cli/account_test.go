package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/task"
)

// account is a real audit on a store in memory, for the site to hand out.
type account struct {
	records  []audit.Record
	receipts [][]byte
	byTask   map[string][]byte
	hashes   map[int64]audit.Hash
}

func (a *account) Append(_ context.Context, f func(audit.Tx) error) error { return f(a) }
func (a *account) Read(_ context.Context, f func(audit.View) error) error { return f(a) }

func (a *account) lastBy(match func(audit.Record) bool) (audit.Record, bool, error) {
	for _, v := range slices.Backward(a.records) {
		if match(v) {
			return v, true, nil
		}
	}
	return audit.Record{}, false, nil
}

func (a *account) Last() (audit.Record, bool, error) {
	return a.lastBy(func(audit.Record) bool { return true })
}

func (a *account) LastOf(id string) (audit.Record, bool, error) {
	return a.lastBy(func(r audit.Record) bool { return r.Task == id })
}

func (a *account) Records(yield func(audit.Record) error) error {
	for _, r := range a.records {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}

func (a *account) RecordsOf(id string, yield func(audit.Record) error) error {
	return a.Records(func(r audit.Record) error {
		if r.Task == id {
			return yield(r)
		}
		return nil
	})
}

func (a *account) Receipt(id string) ([]byte, error) { return a.byTask[id], nil }

func (a *account) Receipts(yield func([]byte) error) error {
	for _, b := range a.receipts {
		if err := yield(b); err != nil {
			return err
		}
	}
	return nil
}

func (a *account) Leaves() (int64, error) { return int64(len(a.receipts)), nil }

func (a *account) ReadHashes(indexes []int64) ([]audit.Hash, error) {
	var out []audit.Hash
	for _, i := range indexes {
		out = append(out, a.hashes[i])
	}
	return out, nil
}

func (a *account) Account(id string) (audit.Account, error) {
	now := time.Now()
	return audit.Account{Task: task.Task{
		ID: id, State: task.Succeeded, RequestedBy: "tester", CreatedAt: now, EndedAt: &now,
		Spec: task.Spec{Agent: task.AgentSpec{Name: "command", Argv: []string{"true"}}},
	}}, nil
}

func (a *account) Known(id, key string) (bool, error) {
	_, ok, err := a.lastBy(func(r audit.Record) bool { return r.Task == id && r.Key == key })
	return ok, err
}

func (a *account) AddRecord(r audit.Record) error {
	a.records = append(a.records, r)
	return nil
}

func (a *account) AddReceipt(id string, _ int64, bundle []byte, first int64, hashes []audit.Hash) error {
	a.receipts, a.byTask[id] = append(a.receipts, bundle), bundle
	for i, h := range hashes {
		a.hashes[first+int64(i)] = h
	}
	return nil
}

// keepAccount makes an account of two tasks, gives it to the site, and writes
// into dir what a person would have kept.
func (s *site) keepAccount(dir string) error {
	ctx := context.Background()
	key, err := audit.NewKey(filepath.Join(dir, ".keys"))
	if err != nil {
		return err
	}
	other, err := audit.NewKey(filepath.Join(dir, ".other"))
	if err != nil {
		return err
	}
	log, err := audit.Open(ctx, audit.Options{Store: &account{byTask: map[string][]byte{}, hashes: map[int64]audit.Hash{}}, Key: key})
	if err != nil {
		return err
	}
	files := map[string][]byte{"other.txt": []byte(other.Public() + "\n")}
	for i, id := range []string{"t-bbbbbbbbbbbbbbbb", "t-aaaaaaaaaaaaaaaa"} {
		for _, kind := range []string{"task.accepted", "task.ended"} {
			if err := log.Record(ctx, id, kind, kind, audit.ControlPlane, map[string]string{"agent": "command"}); err != nil {
				return err
			}
		}
		receipt, err := log.Receipt(ctx, id)
		if err != nil {
			return err
		}
		files["receipt.json"] = receipt
		if i == 0 {
			var early bytes.Buffer
			if err := log.Export(ctx, &early); err != nil {
				return err
			}
			files["early.jsonl"] = early.Bytes()
		}
	}
	checkpoint, err := log.Checkpoint(ctx)
	if err != nil {
		return err
	}
	files["checkpoint.txt"] = []byte(checkpoint)
	var export bytes.Buffer
	if err := log.Export(ctx, &export); err != nil {
		return err
	}
	s.auditKey, s.audit = key.Public(), []string{export.String()}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	var receipt any
	return json.Unmarshal(files["receipt.json"], &receipt)
}
