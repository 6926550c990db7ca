package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// rows implements audit.Store over the same database, so that a receipt is one
// view of facts and records.
type rows struct{ s *Store }

// Audit gives package audit its rows.
func (s *Store) Audit() audit.Store { return rows{s} }

// Append runs f in one writing transaction.
func (a rows) Append(ctx context.Context, f func(audit.Tx) error) error {
	err := a.s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(view{ctx, a.s, tx}) })
	return a.s.failure("append to the audit", err)
}

// Read runs f in one reading transaction.
func (a rows) Read(ctx context.Context, f func(audit.View) error) error {
	err := a.s.read.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(view{ctx, a.s, tx}) })
	return a.s.failure("read the audit", err)
}

// view implements audit.Tx. It lives as long as its transaction, so it may hold
// the context.
type view struct {
	ctx context.Context //nolint:containedctx // of the transaction, see above
	s   *Store
	tx  bun.Tx
}

type recordRow struct {
	bun.BaseModel `bun:"table:audit_records"`

	Seq      int64  `bun:"seq,pk"`
	Task     string `bun:"task"`
	TaskSeq  int64  `bun:"task_seq"`
	Key      string `bun:"key"`
	Time     string `bun:"time"`
	Kind     string `bun:"kind"`
	SeenBy   string `bun:"seen_by"`
	Facts    string `bun:"facts"`
	Prev     string `bun:"prev"`
	TaskPrev string `bun:"task_prev"`
	Hash     string `bun:"hash"`
}

func (r recordRow) record() (audit.Record, error) {
	at, err := time.Parse(time.RFC3339Nano, r.Time)
	if err != nil {
		return audit.Record{}, fmt.Errorf("time of audit record %d: %w", r.Seq, err)
	}
	return audit.Record{
		Seq: r.Seq, Task: r.Task, TaskSeq: r.TaskSeq, Key: r.Key, Time: at, Kind: r.Kind, SeenBy: r.SeenBy,
		Facts: json.RawMessage(r.Facts), Prev: task.Digest(r.Prev), TaskPrev: task.Digest(r.TaskPrev), Hash: task.Digest(r.Hash),
	}, nil
}

type receiptRow struct {
	bun.BaseModel `bun:"table:audit_receipts"`

	Leaf   int64  `bun:"leaf,pk"`
	Task   string `bun:"task"`
	Bundle string `bun:"bundle"`
}

type hashRow struct {
	bun.BaseModel `bun:"table:audit_hashes"`

	Number int64  `bun:"number,pk"`
	Hash   string `bun:"hash"`
}

func (v view) Last() (audit.Record, bool, error) {
	return v.one(v.tx.NewSelect().OrderExpr("seq DESC"))
}

func (v view) LastOf(taskID string) (audit.Record, bool, error) {
	return v.one(v.tx.NewSelect().Where("task = ?", taskID).OrderExpr("task_seq DESC"))
}

func (v view) one(q *bun.SelectQuery) (audit.Record, bool, error) {
	var row recordRow
	err := q.Model(&row).Limit(1).Scan(v.ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Record{}, false, nil
	}
	if err != nil {
		return audit.Record{}, false, err
	}
	r, err := row.record()
	return r, err == nil, err
}

func (v view) Records(yield func(audit.Record) error) error {
	return v.records("seq > ?", nil, yield)
}

func (v view) RecordsOf(taskID string, yield func(audit.Record) error) error {
	return v.records("seq > ? AND task = ?", []any{taskID}, yield)
}

// records yields in pages, so that memory does not grow with the account.
func (v view) records(where string, args []any, yield func(audit.Record) error) error {
	const page = 500
	for last := int64(0); ; {
		var rs []recordRow
		err := v.tx.NewSelect().Model(&rs).Where(where, append([]any{last}, args...)...).OrderExpr("seq").Limit(page).Scan(v.ctx)
		if err != nil {
			return err
		}
		for _, row := range rs {
			r, err := row.record()
			if err != nil {
				return err
			}
			if err := yield(r); err != nil {
				return err
			}
			last = r.Seq
		}
		if len(rs) < page {
			return nil
		}
	}
}

func (v view) Receipt(taskID string) ([]byte, error) {
	var row receiptRow
	err := v.tx.NewSelect().Model(&row).Where("task = ?", taskID).Scan(v.ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return []byte(row.Bundle), err
}

func (v view) Receipts(yield func([]byte) error) error {
	for leaf := int64(-1); ; {
		var row receiptRow
		err := v.tx.NewSelect().Model(&row).Where("leaf > ?", leaf).OrderExpr("leaf").Limit(1).Scan(v.ctx)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := yield([]byte(row.Bundle)); err != nil {
			return err
		}
		leaf = row.Leaf
	}
}

func (v view) Leaves() (n int64, err error) {
	err = v.tx.NewRaw("SELECT coalesce(max(leaf) + 1, 0) FROM audit_receipts").Scan(v.ctx, &n)
	return n, err
}

// ReadHashes reads the log; with it view is a tlog.HashReader.
func (v view) ReadHashes(indexes []int64) ([]audit.Hash, error) {
	if len(indexes) == 0 {
		return nil, nil
	}
	var found []hashRow
	if err := v.tx.NewSelect().Model(&found).Where("number IN (?)", bun.List(indexes)).Scan(v.ctx); err != nil {
		return nil, err
	}
	byNumber := map[int64]audit.Hash{}
	for _, r := range found {
		h, err := audit.ParseHash(r.Hash)
		if err != nil {
			return nil, fmt.Errorf("hash %d of the log: %w", r.Number, err)
		}
		byNumber[r.Number] = h
	}
	out := make([]audit.Hash, 0, len(indexes))
	for _, i := range indexes {
		h, ok := byNumber[i]
		if !ok {
			return nil, fmt.Errorf("hash %d of the log is gone", i)
		}
		out = append(out, h)
	}
	return out, nil
}

func (v view) Account(taskID string) (audit.Account, error) {
	t, err := v.s.loadTask(v.ctx, v.tx, taskID)
	if err != nil {
		return audit.Account{}, err
	}
	row, err := oneTask(v.ctx, v.tx, taskID)
	if err != nil {
		return audit.Account{}, err
	}
	account := audit.Account{Task: t, Stages: []audit.StageRun{}, Sandboxes: []audit.SandboxUse{}}
	if started := table.Optional(row.StartedAt); started != nil {
		account.StartedAt = *started
	}
	var stages []stageRow
	if err := v.tx.NewSelect().Model(&stages).Where("task = ?", taskID).OrderExpr("attempt").Scan(v.ctx); err != nil {
		return audit.Account{}, err
	}
	account.Stages = runs(stages)
	specs, err := sandboxesOf(v.ctx, v.tx, taskID)
	if err != nil {
		return audit.Account{}, err
	}
	for _, spec := range specs {
		account.Sandboxes = append(account.Sandboxes, audit.SandboxUse{ID: spec.ID, Role: spec.Role, Network: spec.Network})
	}
	return account, nil
}

// runs puts the stages of each attempt into their order.
func runs(stages []stageRow) []audit.StageRun {
	out := []audit.StageRun{}
	for len(stages) > 0 {
		n := 0
		for n < len(stages) && stages[n].Attempt == stages[0].Attempt {
			n++
		}
		for _, name := range task.StageNames() {
			for _, r := range stages[:n] {
				if r.Name != string(name) {
					continue
				}
				st := r.stage()
				out = append(out, audit.StageRun{
					Attempt: int(r.Attempt), Name: st.Name, State: st.State, Reason: st.Reason, Sandbox: st.Sandbox,
					ExitCode: st.ExitCode, StartedAt: st.StartedAt, EndedAt: st.EndedAt,
				})
			}
		}
		stages = stages[n:]
	}
	return out
}

func (v view) Known(taskID, key string) (bool, error) {
	return v.tx.NewSelect().Model((*recordRow)(nil)).Where("task = ? AND key = ?", taskID, key).Exists(v.ctx)
}

func (v view) AddRecord(r audit.Record) error {
	row := recordRow{
		Seq: r.Seq, Task: r.Task, TaskSeq: r.TaskSeq, Key: r.Key, Time: r.Time.Format(time.RFC3339Nano), Kind: r.Kind,
		SeenBy: r.SeenBy, Facts: string(r.Facts), Prev: string(r.Prev), TaskPrev: string(r.TaskPrev), Hash: string(r.Hash),
	}
	_, err := v.tx.NewInsert().Model(&row).Exec(v.ctx)
	return err
}

func (v view) AddReceipt(taskID string, leaf int64, bundle []byte, first int64, hashes []audit.Hash) error {
	row := receiptRow{Leaf: leaf, Task: taskID, Bundle: string(bundle)}
	if _, err := v.tx.NewInsert().Model(&row).Exec(v.ctx); err != nil {
		return err
	}
	stored := make([]hashRow, 0, len(hashes))
	for i, h := range hashes {
		stored = append(stored, hashRow{Number: first + int64(i), Hash: h.String()})
	}
	_, err := v.tx.NewInsert().Model(&stored).Exec(v.ctx)
	return err
}
