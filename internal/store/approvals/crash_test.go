package approvals_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/approvals"
	"github.com/cofferdam/cofferdam/internal/task"
)

const victimVariable = "COFFERDAM_APPROVALS_TEST_VICTIM"

// silent is an account and machines of the victim's.
type silent struct{}

func (silent) Record(context.Context, string, string, string, string, any) error { return nil }
func (silent) Extend(context.Context, string, task.StageName, task.Rule) error   { return nil }
func (silent) Retract(context.Context, string, string, string) error             { return nil }

// victim asks, answers and uses until it is killed, and says what was kept: a
// line a fact, after the call returned.
func victim(dir string, out io.Writer) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		return err
	}
	inbox := approval.New(approval.Options{Rows: approvals.New(s.Base()), Audit: silent{}, Grants: silent{}, Now: time.Now})
	for n := 0; ; n++ {
		made, _, err := s.CreateTask(ctx, task.Task{RequestedBy: who}, "")
		if err != nil {
			return err
		}
		q := connection(made, "a.test", "sb-1")
		id := ""
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"asked", func() error {
				a, err := inbox.Poll(ctx, q, "c1", "", 0)
				id = a.Approval.ID
				return err
			}},
			{"decided", func() error {
				scope := []task.ApprovalScope{task.ScopeOnce, task.ScopeTask}[n%2]
				_, err := inbox.Decide(ctx, id, allow(scope))
				return err
			}},
			{"used", func() error {
				a, err := inbox.Poll(ctx, q, "c1", id, 0)
				if err == nil && !a.Allow {
					err = fmt.Errorf("not allowed: %+v", a)
				}
				return err
			}},
		} {
			if err := step.do(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			if _, err := fmt.Fprintln(out, made.ID, id, step.name); err != nil {
				return err
			}
		}
	}
}

// What was kept is there after a kill, and an answer for one use stays used.
func TestKilledInboxLosesNothing(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		kept, enough, lines := map[string]string{}, rand.IntN(20), bufio.NewScanner(out)
		tasks := map[string]string{}
		for n := 0; lines.Scan(); n++ {
			f := strings.Fields(lines.Text())
			kept[f[1]], tasks[f[1]] = f[2], f[0]
			if n == enough {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the victim ended by itself")
		}
		examine(t, dir, kept, tasks)
	}
}

func examine(t *testing.T, dir string, kept, tasks map[string]string) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	inbox := approval.New(approval.Options{Rows: approvals.New(s.Base()), Audit: silent{}, Grants: silent{}, Now: time.Now})
	for id, step := range kept {
		a, err := inbox.Get(t.Context(), id, who, false)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if step != "asked" && a.State != task.AskedAllowed || step == "used" && a.Scope == task.ScopeOnce && a.UsedBy != "c1" {
			t.Errorf("%s was %s: %+v", id, step, a)
		}
		if a.Decision != "" {
			if list, err := inbox.Decisions(t.Context(), approval.Filter{ID: a.Decision}); err != nil || len(list) != 1 || !list[0].Allow {
				t.Errorf("%s: decision %+v %v", id, list, err)
			}
		}
		made, err := s.Task(t.Context(), tasks[id])
		if err != nil {
			t.Fatal(err)
		}
		q := connection(made, "a.test", "sb-1")
		if got, err := inbox.Poll(t.Context(), q, "c1", id, 0); err != nil || a.State == task.AskedAllowed && !got.Allow {
			t.Errorf("%s: the same use again: %+v %v", id, got, err)
		}
		if got, err := inbox.Poll(t.Context(), q, "thief", id, 0); err != nil || got.Allow && a.Scope == task.ScopeOnce {
			t.Errorf("%s: another use: %+v %v", id, got, err)
		}
	}
}
