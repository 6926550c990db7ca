package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func openLog(t *testing.T, s *Store) (*audit.Log, *audit.Key) {
	t.Helper()
	key, err := audit.NewKey(t.TempDir())
	must(t, err)
	log, err := audit.Open(t.Context(), audit.Options{Store: s.Audit(), Key: key, Now: s.now})
	must(t, err)
	return log, key
}

func TestReceiptTellsOfTheRows(t *testing.T) {
	s := open(t)
	log, key := openLog(t, s)
	id := create(t, s, task.Task{RequestedBy: "alice", Repo: "r", Spec: task.Spec{Prompt: "the plan"}}).ID
	ctx := t.Context()
	must(t, s.SetTask(ctx, id, stage.TaskUpdate{State: task.Running, Attempt: 1, Worker: "w1", Commit: "c0ffee"}))
	must(t, s.AddSandbox(ctx, id, sandbox.Spec{ID: "sb-aaaaaaaaaaaaaaaa", Role: "agent", Network: true}))
	for attempt := 1; attempt <= 2; attempt++ {
		for _, name := range []task.StageName{task.Verify, task.Provision, task.Agent} {
			must(t, s.SetStage(ctx, id, attempt, task.Stage{Name: name, State: task.StageRunning}))
			must(t, s.SetStage(ctx, id, attempt, task.Stage{Name: name, State: task.StageSucceeded, Text: "the plan"}))
		}
	}
	must(t, s.AddOutput(ctx, id, task.Output{Name: "patch", Kind: "patch", Digest: "sha256:1", Size: 5}))
	must(t, s.AddEgress(ctx, id, []task.EgressRecord{{Seq: 1, Sandbox: "sb-aaaaaaaaaaaaaaaa", Verdict: "denied"}}))
	must(t, log.Record(ctx, id, "k", "stage.ended", audit.ControlPlane, map[string]any{"sandbox": "sb-aaaaaaaaaaaaaaaa", "rules": []task.Rule{}}))
	if _, err := log.Receipt(ctx, id); task.ReasonOf(err) != task.InfraInternal {
		t.Errorf("a receipt of a running task: %v", err)
	}
	must(t, s.SetTask(ctx, id, stage.TaskUpdate{State: task.Failed, Reason: task.VerifyFailed, Text: "the plan"}))
	raw, err := log.Receipt(ctx, id)
	must(t, err)
	report, err := audit.VerifyReceipt(key.Public(), raw)
	must(t, errors.Join(err, report.Err()))
	b := report.Body
	if b.RequestedBy != "alice" || b.Worker != "w1" || b.Commit != "c0ffee" || b.State != task.Failed || b.Reason != task.VerifyFailed ||
		len(b.Stages) != 6 || b.Stages[0].Name != task.Provision || b.Stages[5].Attempt != 2 || len(b.Sandboxes) != 1 || len(b.Outputs) != 1 ||
		b.Egress.Denied != 1 || len(b.Grants) != 1 || b.StartedAt == nil || b.EndedAt.IsZero() || b.Records != 1 {
		t.Errorf("body %+v", b)
	}
	if strings.Contains(string(raw), "the plan") {
		t.Error("the receipt holds the prompt, or a text that may")
	}
	again, err := log.Receipt(ctx, id)
	if err != nil || !bytes.Equal(raw, again) {
		t.Errorf("a second receipt: %v", err)
	}
}

// TestTwoStoresOneAccount appends from two open databases at once.
func TestTwoStoresOneAccount(t *testing.T) {
	dir := t.TempDir()
	a, b := openAt(t, dir), openAt(t, dir)
	log, key := openLog(t, a)
	other, err := audit.Open(t.Context(), audit.Options{Store: b.Audit(), Key: key})
	must(t, err)
	var wg sync.WaitGroup
	for i, side := range []struct {
		s *Store
		l *audit.Log
	}{{a, log}, {b, other}} {
		for j := range 3 {
			wg.Go(func() {
				for k := range 5 {
					if err := side.l.Record(context.Background(), "", fmt.Sprint(i, j, k), "k", audit.Gateway, nil); err != nil {
						t.Error(err)
					}
				}
				made, _, err := side.s.CreateTask(context.Background(), task.Task{RequestedBy: "x"}, "")
				if err == nil {
					err = live(context.Background(), side.s, side.l, made.ID, new(bytes.Buffer))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	var export bytes.Buffer
	must(t, log.Export(t.Context(), &export))
	report, err := audit.VerifyLog(key.Public(), &export, audit.VerifyOptions{})
	must(t, errors.Join(err, report.Err()))
	if report.Records != 30+12 || report.Receipts != 6 {
		t.Errorf("%d records, %d receipts", report.Records, report.Receipts)
	}
}

// TestRowsChangedByHandAreFound changes rows of the audit with SQL.
func TestRowsChangedByHandAreFound(t *testing.T) {
	for name, q := range map[string]string{
		"record":       "UPDATE audit_records SET seen_by = 'guest' WHERE seq = 2",
		"record gone":  "DELETE FROM audit_records WHERE seq = 2",
		"task gone":    "DELETE FROM audit_receipts WHERE leaf = 0",
		"receipt":      "UPDATE audit_receipts SET bundle = replace(bundle, 'victim', 'nobody') WHERE leaf = 0",
		"key":          "UPDATE audit_records SET key = 'x' WHERE seq = 2",
		"order":        "UPDATE audit_records SET seq = CASE seq WHEN 1 THEN 1000 ELSE 1001 END WHERE seq IN (1, 2)",
		"tree":         "UPDATE audit_hashes SET hash = (SELECT hash FROM audit_hashes WHERE number = 0)",
		"a task added": "INSERT INTO audit_records SELECT 3000, 't-x', 1, key, time, kind, seen_by, facts, prev, task_prev, hash FROM audit_records WHERE seq = 2",
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			log, key := openLog(t, s)
			for range 2 {
				must(t, live(t.Context(), s, log, create(t, s, task.Task{RequestedBy: "victim"}).ID, new(bytes.Buffer)))
			}
			res, err := s.write.ExecContext(t.Context(), q)
			must(t, err)
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				t.Fatalf("nothing was changed: %v", err)
			}
			var export bytes.Buffer
			err = log.Export(t.Context(), &export)
			if err != nil && task.ReasonOf(err) == task.InfraStorage {
				return // refused to sign it
			}
			must(t, err)
			report, err := audit.VerifyLog(key.Public(), &export, audit.VerifyOptions{})
			must(t, err)
			if report.OK() {
				t.Error("it verifies")
			}
		})
	}
}
