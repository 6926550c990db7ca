package credential

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

const victimVariable = "COFFERDAM_CREDENTIAL_TEST_VICTIM"

func TestMain(m *testing.M) {
	if of := os.Getenv(victimVariable); of != "" {
		if err := victim(of); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// mortal kills its own process before the call of a number to the rows or the
// audit, so that every point between two effects is met.
type mortal struct {
	*store.Store
	audit *audit.Log
	left  int
}

func (m *mortal) live() {
	if m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	m.left--
}

func (m *mortal) MakeLease(ctx context.Context, l task.Lent) (task.Lent, error) {
	m.live()
	return m.Store.MakeLease(ctx, l)
}

func (m *mortal) EndLeases(ctx context.Context, id, sandbox, why string, at time.Time) ([]task.Lent, error) {
	m.live()
	return m.Store.EndLeases(ctx, id, sandbox, why, at)
}

func (m *mortal) EndCredential(ctx context.Context, name string, at time.Time, remove bool) (task.Credential, []task.Lent, error) {
	m.live()
	return m.Store.EndCredential(ctx, name, at, remove)
}

func (m *mortal) UseCredential(ctx context.Context, id string, at time.Time) error {
	m.live()
	return m.Store.UseCredential(ctx, id, at)
}

func (m *mortal) Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error {
	m.live()
	return m.audit.Record(ctx, taskID, key, kind, seenBy, facts)
}

// lives says one line a fact, after the call that made it so returned.
func lives(ctx context.Context, l *Leases, u task.LeaseUse, say func(...any)) error {
	lent, err := l.Lend(ctx, u, rules("key"))
	if err != nil {
		return err
	}
	say("lent", lent[0].ID, lent[0].Placeholder)
	if lent[0].Active() {
		if v, err := l.Value(ctx, u.Sandbox, lent[0].ID); err != nil || v.Value.Reveal() != realValue {
			return fmt.Errorf("value: %w", err)
		}
		say("given")
	}
	if err := l.End(ctx, u.Task, u.Sandbox, task.EndedStage); err != nil {
		return err
	}
	say("ended")
	if _, err = l.Lend(ctx, u, rules("key")); err != nil { // a second round
		return err
	}
	if _, _, err := l.Revoke(ctx, "key", "admin", false); err != nil && task.ReasonOf(err) != task.InputNotFound {
		return err
	}
	say("revoked")
	if err := l.End(ctx, u.Task, "", task.EndedTask); err != nil {
		return err
	}
	say("over")
	return nil
}

// victim lives until its call of a number.
func victim(of string) error {
	what, of, _ := strings.Cut(of, "/")
	number, rest, _ := strings.Cut(of, ":")
	dir, id, _ := strings.Cut(rest, ":")
	left, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Dir: dir})
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
	m := &mortal{Store: s, audit: log, left: left}
	v, err := Open(ctx, filepath.Join(dir, "keys"), m, time.Now)
	if err != nil {
		return err
	}
	if what == "rotate" {
		return rotateLife(ctx, v, s, m.live)
	}
	u := task.LeaseUse{Task: id, Attempt: 1, Stage: task.Agent, Sandbox: "sb-" + id[2:], Who: "alice"}
	say := func(a ...any) { fmt.Println(a...) }
	if what == "mint" {
		return mintLife(ctx, NewLeases(v, m, m, time.Now, mortalMinting(dir, minted.New(s.Base()), m.live)), u, say)
	}
	return lives(ctx, NewLeases(v, m, m, time.Now, Minting{}), u, say)
}

// TestKilledBetweenEveryStep kills the process with signal 9 before each of its
// calls, starts it again and looks at the account: each begin and each end once,
// one placeholder, and nothing active at the end.
func TestKilledBetweenEveryStep(t *testing.T) {
	t.Parallel()
	for left := 0; ; left++ {
		r := newRig(t)
		r.add(nil)
		tk := r.task("alice")
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		killed, said := r.strike(left, tk.ID)
		if again, more := r.strike(1000, tk.ID); again {
			t.Fatalf("step %d: the second life was killed", left)
		} else {
			said = append(said, more...)
		}
		r.open()
		r.judge(left, tk, said)
		if !killed {
			if left < 8 {
				t.Errorf("only %d steps", left)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
}

func (r *rig) strike(left int, id string) (killed bool, said []string) {
	return r.strikeAs("lease", left, id)
}

// strikeAs lives the named life until its call of a number.
func (r *rig) strikeAs(what string, left int, id string) (killed bool, said []string) {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s/%d:%s:%s", victimVariable, what, left, r.dir, id))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		said = append(said, lines.Text())
	}
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return true, said
		}
	}
	if err != nil {
		r.t.Fatalf("step %d: %v\n%s", left, err, stderr.String())
	}
	return false, said
}

func (r *rig) judge(left int, tk task.Task, said []string) {
	r.t.Helper()
	all, err := r.leases.Of(r.t.Context(), tk.ID)
	if err != nil || len(all) != 1 || all[0].Active() {
		r.t.Fatalf("step %d: leases %+v, %v", left, all, err)
	}
	for _, line := range said {
		if strings.HasPrefix(line, "lent ") && line != "lent "+all[0].ID+" "+all[0].Placeholder {
			r.t.Errorf("step %d: said %q, kept %s %s", left, line, all[0].ID, all[0].Placeholder)
		}
	}
	export := r.export()
	for n := 1; n <= all[0].Count; n++ {
		for _, kind := range []string{"credential.lent", "credential.ended"} {
			key := fmt.Sprintf(`"key":"%s/%s/%d"`, kind, all[0].ID, n)
			if got := strings.Count(export, key); got != 1 {
				r.t.Errorf("step %d: %d records of %s", left, got, key)
			}
		}
	}
	if strings.Contains(export, fmt.Sprintf(`/%s/%d"`, all[0].ID, all[0].Count+1)) {
		r.t.Errorf("step %d: a record of a lease that never was", left)
	}
	if strings.Contains(export, realValue) {
		r.t.Errorf("step %d: the account has the value", left)
	}
}
