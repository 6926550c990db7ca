package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

const victimVariable = "COFFERDAM_STORE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := victim(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// victim runs tasks until it is killed, and says what has been kept: one line
// a fact, after the call returned.
func victim(dir string, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	key, err := audit.NewKey(filepath.Join(dir, "keys"))
	if err != nil {
		return err
	}
	log, err := audit.Open(ctx, audit.Options{Store: s.Audit(), Key: key})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		made, _, err := s.CreateTask(ctx, task.Task{RequestedBy: "victim"}, "")
		if err != nil {
			return err
		}
		if err := live(ctx, s, log, made.ID, out); err != nil {
			return err
		}
	}
}

// live takes a task through its facts.
func live(ctx context.Context, s *Store, log *audit.Log, id string, out io.Writer) error {
	box := "sb-" + id[2:]
	steps := []struct {
		name string
		do   func() error
	}{
		{"created", func() error { return nil }},
		{"running", func() error { return s.SetTask(ctx, id, stage.TaskUpdate{State: task.Running, Attempt: 1}) }},
		{"sandbox", func() error { return s.AddSandbox(ctx, id, sandbox.Spec{ID: box, Task: id, Role: "agent"}) }},
		{"record", func() error { return log.Record(ctx, id, "one", "k", audit.ControlPlane, map[string]string{"a": "b"}) }},
		{"egress", func() error {
			return s.AddEgress(ctx, id, []task.EgressRecord{{Seq: 1, Sandbox: box, Verdict: "allowed"}, {Seq: 2, Sandbox: box, Verdict: "denied"}})
		}},
		{"stage", func() error { return s.SetStage(ctx, id, 1, task.Stage{Name: task.Agent, State: task.StageSucceeded}) }},
		{"record2", func() error { return log.Record(ctx, id, "two", "k", audit.Worker, nil) }},
		{"ended", func() error { return s.SetTask(ctx, id, stage.TaskUpdate{State: task.Succeeded}) }},
		{"receipt", func() error {
			_, err := log.Receipt(ctx, id)
			return err
		}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s of %s: %w", step.name, id, err)
		}
		if _, err := fmt.Fprintln(out, id, step.name); err != nil {
			return err
		}
	}
	return nil
}

// strike starts a victim, reads what it says until it said enough, kills it
// and returns everything it had said.
func strike(t *testing.T, dir string, enough int) map[string]map[string]bool {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	said, lines := map[string]map[string]bool{}, bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		id, step, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			t.Errorf("the victim said %q", lines.Text())
		}
		if said[id] == nil {
			said[id] = map[string]bool{}
		}
		said[id][step] = true
		if n == enough {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || stderr.Len() > 0 {
		t.Errorf("the victim ended by itself: %v\n%s", err, stderr.String())
	}
	return said
}

// TestKilledWriterLosesNothing kills a writer, alone or beside another, in
// twenty moments and looks at what is left each time.
func TestKilledWriterLosesNothing(t *testing.T) {
	dir := t.TempDir()
	key, err := audit.NewKey(filepath.Join(dir, "keys"))
	must(t, err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	moments := rand.New(rand.NewPCG(seed, 1))
	all := map[string]map[string]bool{}
	for round := range 20 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 1 + round%2 {
			enough := moments.IntN(40)
			wg.Go(func() {
				said := strike(t, dir, enough)
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(all, said)
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		examineAfter(t, dir, key, all)
	}
}

func examineAfter(t *testing.T, dir string, key *audit.Key, said map[string]map[string]bool) {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	log, err := audit.Open(t.Context(), audit.Options{Store: s.Audit(), Key: key})
	must(t, err)
	var export bytes.Buffer
	must(t, log.Export(t.Context(), &export))
	report, err := audit.VerifyLog(key.Public(), bytes.NewReader(export.Bytes()), audit.VerifyOptions{})
	must(t, errors.Join(err, report.Err()))
	tasks, err := s.Tasks(t.Context(), "", 100000, "")
	must(t, err)
	found := map[string]bool{}
	for _, got := range tasks {
		found[got.ID] = true
		steps := said[got.ID]
		_, events := read(t, s, got.ID)
		last := events[len(events)-1]
		for name, held := range map[string]bool{
			"running": got.State != task.Queued, "sandbox": got.Usage.Sandboxes == 1, "stage": got.Stages[4].State == task.StageSucceeded,
			"egress": got.Usage.EgressAllowed == 1 && got.Usage.EgressDenied == 1, "ended": got.State == task.Succeeded,
		} {
			if steps[name] && !held {
				t.Errorf("%s: %q was kept and is gone: %+v", got.ID, name, got)
			}
		}
		if (got.Usage.EgressAllowed == 1) != (got.Usage.EgressDenied == 1) {
			t.Errorf("%s: half of the egress records are kept", got.ID)
		}
		if ended, ok := last.Data.(task.Task); got.State.Ended() && (!ok || ended.State != got.State) {
			t.Errorf("%s: ended without an event: %+v", got.ID, last)
		}
		if steps["record"] && !bytes.Contains(export.Bytes(), []byte(`"key":"one","kind":"k","prev"`)) {
			t.Errorf("%s: its record is gone", got.ID)
		}
		if steps["receipt"] {
			raw, err := log.Receipt(t.Context(), got.ID)
			must(t, err)
			if !bytes.Contains(export.Bytes(), raw) {
				t.Errorf("%s: its receipt is gone", got.ID)
			}
		}
	}
	for id, steps := range said {
		if steps["created"] && !found[id] {
			t.Errorf("task %s is gone", id)
		}
	}
}
