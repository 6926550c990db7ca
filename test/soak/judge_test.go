//go:build soak

package soak

import (
	"bytes"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// judgeTasks looks at how each task ended and at how often its agent ran.
func (w *world) judgeTasks(t *testing.T, jobs []*job) {
	t.Helper()
	for _, j := range jobs {
		if j.err != nil {
			t.Errorf("%s (%s, task %s): %v; its state is %s", j.name, j.kind, j.task.ID, j.err, j.task.State)
			continue
		}
		if why := j.explain(); why != "" {
			t.Errorf("%s (%s, task %s) ended %s %q: %s\n%s", j.name, j.kind, j.task.ID, j.task.State, j.task.Reason, why, history(j.task))
		}
		starts := 0
		for _, run := range j.task.History {
			if run.Stage == "agent" {
				starts++
			}
		}
		if ran := w.ran(j.name); ran > starts {
			t.Errorf("%s (%s, task %s): %d runs of its agent in %d attempts\n%s", j.name, j.kind, j.task.ID, ran, starts, history(j.task))
		}
		for _, lease := range j.task.Leases {
			if lease.Until == nil {
				t.Errorf("%s (task %s): its lease %s has not ended", j.name, j.task.ID, lease.ID)
			}
		}
	}
}

// explain says what the record of a job does not explain; empty: nothing.
func (j *job) explain() string {
	got := j.task
	attempts := map[int]task.Reason{} // the last reason of each attempt
	for _, run := range got.History {
		if run.State == "" || run.State == "running" || run.State == "pending" {
			return "a stage is left " + run.State
		}
		if run.Reason != "" {
			attempts[run.Attempt] = task.Reason(run.Reason)
		}
	}
	for n := 1; n < got.Attempt; n++ {
		if attempts[n].Class() != "infra" {
			return fmt.Sprintf("attempt %d was followed by another one for %q", n, attempts[n])
		}
	}
	last := got.Stages
	if len(last) == 0 || last[len(last)-1].Name != "close" || last[len(last)-1].State != "succeeded" {
		return "it was not closed"
	}
	switch reason := task.Reason(got.Reason); {
	case got.State == j.state && reason == j.reason:
		return ""
	case got.State == api.Failed && reason == task.InfraExhausted && got.Attempt == 3:
		return "" // each of its attempts is explained above
	case j.kind == "loop" && got.State == api.Failed && reason == task.InfraExhausted:
		return ""
	}
	return fmt.Sprintf("want %s %q", j.state, j.reason)
}

// history is a task's stages, one a line.
func history(got api.Task) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s\n", got.Text)
	for _, run := range got.History {
		fmt.Fprintf(&b, "  attempt %d round %d %s: %s %s %s\n", run.Attempt, run.Round, run.Stage, run.State, run.Reason, run.Text)
	}
	return b.String()
}

// judgeReceipts verifies every receipt, and the log of all.
func (w *world) judgeReceipts(t *testing.T, jobs []*job) {
	t.Helper()
	dir := t.TempDir()
	key, log := filepath.Join(dir, "key"), filepath.Join(dir, "log")
	for file, args := range map[string][]string{key: {"audit", "key"}, log: {"audit", "export"}} {
		cmd := w.e.Command(args...)
		out, err := cmd.Output()
		if err == nil {
			err = os.WriteFile(file, out, 0o600)
		}
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	args := []string{"audit", "verify", "--key", key, "--log", log}
	for _, j := range jobs {
		receipt, err := w.api.Receipt(t.Context(), j.task.ID)
		if err != nil {
			t.Errorf("%s (task %s): its receipt: %v", j.name, j.task.ID, err)
			continue
		}
		file := filepath.Join(dir, j.task.ID)
		if err := os.WriteFile(file, receipt, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	out, err := w.e.CLI(args...)
	if verified := strings.Count(out, ": verified: task "); err != nil || verified != len(jobs) {
		t.Errorf("audit verify: %v, %d of %d receipts verified\n%s", err, verified, len(jobs), out)
	}
	t.Logf("%d receipts verify, and the log of them", len(jobs))
}

// folder is what lies below a folder of the data folder.
func (w *world) folder(name string) (bytes int64, files int) {
	_ = filepath.WalkDir(filepath.Join(w.e.Data, name), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			bytes, files = bytes+info.Size(), files+1
		}
		return nil
	})
	return bytes, files
}

// judgeDisk prints what each part of the data folder holds, and fails for what
// should hold nothing of ended tasks.
func (w *world) judgeDisk(t *testing.T, jobs []*job) {
	t.Helper()
	n := int64(max(len(jobs), 1))
	for _, name := range []string{"cofferdamd/blobs", "cofferdamd/logs", "cofferdamd", "engine", "gateway", "worker", "worker/network", "worker/ledger", "log"} {
		bytes, files := w.folder(name)
		t.Logf("disk: %-16s %10s in %5d files, %8d bytes a task", name, size(bytes), files, bytes/n)
	}
	for name, most := range map[string]int64{
		"worker/sandboxes": 0, "worker/runsc": 0, "worker/epochs": 1 << 20, "worker/ledger": 2 << 20, "gateway": 16 << 20,
	} {
		if bytes, files := w.folder(name); bytes > most {
			t.Errorf("disk: %s holds %s in %d files after the end, want at most %s", name, size(bytes), files, size(most))
		}
	}
}

// judgeDatabases checks the files of the databases once their daemons are gone.
func (w *world) judgeDatabases(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.e.Data, "*", "*.db"))
	if err != nil || len(files) < 2 {
		t.Fatalf("databases: %v, %v", files, err)
	}
	for _, file := range files {
		db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if got := ask(t, db, "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("%s: integrity: %s", file, got)
		}
		if got := ask(t, db, "PRAGMA foreign_key_check"); got != "" {
			t.Errorf("%s: foreign keys: %s", file, got)
		}
		if !bytes.Contains([]byte(file), []byte("cofferdamd")) {
			continue
		}
		for question, want := range map[string]string{
			"SELECT count(*) FROM leases WHERE until_at IS NULL":                           "0",
			"SELECT count(*) FROM tasks WHERE ended_at IS NULL":                            "0",
			"SELECT count(*) FROM owners":                                                  "0",
			"SELECT count(*) FROM tasks WHERE id NOT IN (SELECT task FROM audit_receipts)": "0",
		} {
			if got := ask(t, db, question); got != want {
				t.Errorf("%s: %s: %s, want %s", file, question, got, want)
			}
		}
	}
}

// ask returns the rows of a question, a line each.
func ask(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), question)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = v.String
		}
		lines = append(lines, strings.Join(line, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
