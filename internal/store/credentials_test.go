package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func aCredential(name string) task.Credential {
	return task.Credential{
		ID: "c-" + name, Name: name, Owner: "alice", Shared: true, Kind: task.KindHeader, Header: "X-Key", Prefix: "p ", Hosts: []string{"*.a.example", "b.example"},
		Ports: []uint16{443, 65535}, Methods: []string{"GET"}, Paths: []string{"/a/**"}, Env: "KEY", Shape: "sk-", Created: time.Unix(1, 2000).UTC(),
	}
}

func aLease(t testing.TB, s *Store, of task.Task, c task.Credential, id string) task.Lent {
	t.Helper()
	got, err := s.MakeLease(t.Context(), leaseOf(of, c, id))
	must(t, err)
	return got
}

func leaseOf(of task.Task, c task.Credential, id string) task.Lent {
	return task.Lent{
		Lease:        task.Lease{ID: id, Credential: c.Name, Kind: c.Kind, Header: c.Header, Prefix: c.Prefix, Placeholder: "placeholder" + id, Hosts: c.Hosts, Ports: c.Ports, Methods: c.Methods, Paths: c.Paths},
		CredentialID: c.ID, Env: c.Env, Task: of.ID, Attempt: 2, Stage: task.Agent, Sandbox: "sb-" + of.ID[2:], Count: 1, From: time.Unix(100, 0).UTC(),
	}
}

func TestCredentialsAreKeptWhole(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	for _, name := range []string{"b", "a'; DROP TABLE leases; --", "c"} {
		must(t, s.AddCredential(ctx, aCredential(name), []byte{0, 1, 255, byte(len(name))}))
	}
	if err := s.AddCredential(ctx, aCredential("b"), nil); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("a name twice: %v", err)
	}
	got, sealed, err := s.Credential(ctx, "b")
	must(t, err)
	if diff := cmp.Diff(aCredential("b"), got); diff != "" || !slices.Equal(sealed, []byte{0, 1, 255, 1}) {
		t.Errorf("%v %s", sealed, diff)
	}
	must(t, s.UseCredential(ctx, "c-b", time.Unix(50, 0)))
	must(t, s.UseCredential(ctx, "c-b", time.Unix(40, 0)))
	must(t, s.UseCredential(ctx, "c-none", time.Unix(40, 0)))
	list, err := s.Credentials(ctx)
	must(t, err)
	if len(list) != 3 || list[1].Name != "b" || list[1].LastUsed == nil || list[1].LastUsed.Unix() != 50 || list[0].LastUsed != nil {
		t.Errorf("list %+v", list)
	}
	if _, _, err := s.Credential(ctx, "none"); task.ReasonOf(err) != task.InputNotFound {
		t.Error(err)
	}
	if _, _, err := s.EndCredential(ctx, "none", time.Now(), true); task.ReasonOf(err) != task.InputNotFound {
		t.Error(err)
	}
}

func TestLeasesOfACredentialEndWithIt(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	a, b := aCredential("a"), aCredential("b")
	must(t, s.AddCredential(ctx, a, []byte("a")))
	must(t, s.AddCredential(ctx, b, []byte("b")))
	one, two := create(t, s, task.Task{RequestedBy: "alice"}), create(t, s, task.Task{RequestedBy: "bob"})
	want := leaseOf(one, a, "l-1")
	if diff := cmp.Diff(want, aLease(t, s, one, a, "l-1")); diff != "" {
		t.Error(diff)
	}
	other := leaseOf(one, a, "l-1")
	other.Placeholder, other.From = "another", time.Unix(900, 0)
	again, err := s.MakeLease(ctx, other)
	must(t, err)
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("repeated: %s", diff)
	}
	stranger := leaseOf(two, a, "l-1")
	if _, err := s.MakeLease(ctx, stranger); task.ReasonOf(err) != task.InfraInternal {
		t.Errorf("another task's: %v", err)
	}
	aLease(t, s, two, a, "l-2")
	aLease(t, s, two, b, "l-3")
	c, ended, err := s.EndCredential(ctx, "a", time.Unix(50, 0), false) // before they began: the clock was set back
	must(t, err)
	if c.Revoked == nil || len(ended) != 2 || ended[0].Ended != task.EndedRevoked || ended[0].Until.Before(ended[0].From) {
		t.Errorf("ended %+v", ended)
	}
	_, ended, err = s.EndCredential(ctx, "a", time.Unix(70, 0), false)
	must(t, err)
	if got, sealed, err := s.Credential(ctx, "a"); err != nil || len(ended) != 0 || len(sealed) != 0 || got.Revoked.Unix() != 50 {
		t.Errorf("revoked again: %+v %v %v %v", got, sealed, ended, err)
	}
	if _, err := s.MakeLease(ctx, leaseOf(two, a, "l-4")); task.ReasonOf(err) != task.PolicyCredential {
		t.Errorf("of a revoked one: %v", err)
	}
	if l, err := s.MakeLease(ctx, leaseOf(one, a, "l-1")); err != nil || l.Active() {
		t.Errorf("made again: %+v, %v", l, err)
	}
	if _, _, err := s.EndCredential(ctx, "b", time.Unix(500, 0), true); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Lease(ctx, "l-3"); err != nil || l.Active() || l.Credential != "b" {
		t.Errorf("of a removed one: %+v, %v", l, err)
	}
	if _, err := s.Lease(ctx, "l-none"); task.ReasonOf(err) != task.InputNotFound {
		t.Error(err)
	}
	must(t, s.AddCredential(ctx, aCredential("b"), []byte("b")))
}

func TestLeasesEndBySandboxAndTask(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	c := aCredential("a")
	must(t, s.AddCredential(ctx, c, []byte("a")))
	of := create(t, s, task.Task{RequestedBy: "alice"})
	first := aLease(t, s, of, c, "l-1")
	elsewhere := leaseOf(of, c, "l-2")
	elsewhere.Sandbox = "sb-elsewhere"
	_, err := s.MakeLease(ctx, elsewhere)
	must(t, err)
	ended, err := s.EndLeases(ctx, of.ID, first.Sandbox, task.EndedStage, time.Unix(200, 0))
	must(t, err)
	if len(ended) != 1 || ended[0].ID != "l-1" || ended[0].Ended != task.EndedStage || ended[0].Until.Unix() != 200 {
		t.Errorf("ended %+v", ended)
	}
	// Made again it is counted, and keeps its placeholder.
	again := leaseOf(of, c, "l-1")
	again.From, again.Placeholder = time.Unix(300, 0), "another"
	got, err := s.MakeLease(ctx, again)
	must(t, err)
	if !got.Active() || got.Count != 2 || got.From.Unix() != 300 || got.Placeholder != first.Placeholder || got.Ended != "" {
		t.Errorf("again %+v", got)
	}
	for range 2 {
		ended, err = s.EndLeases(ctx, of.ID, "", task.EndedTask, time.Unix(400, 0))
		must(t, err)
		if len(ended) != 2 || ended[0].Until.Unix() != 400 || ended[1].ID != "l-2" {
			t.Errorf("ended %+v", ended)
		}
	}
	if l, err := s.MakeLease(ctx, again); err != nil || l.Active() || l.Ended != task.EndedTask {
		t.Errorf("after the task: %+v, %v", l, err)
	}
	list, err := s.Leases(ctx, of.ID)
	must(t, err)
	if len(list) != 2 || list[0].ID != "l-1" || list[1].ID != "l-2" {
		t.Errorf("list %+v", list)
	}
	must(t, s.SetTask(ctx, of.ID, stage.TaskUpdate{State: task.Running}))
	must(t, s.SetTask(ctx, of.ID, stage.TaskUpdate{State: task.Failed}))
	if _, err := s.MakeLease(ctx, leaseOf(of, c, "l-9")); task.ReasonOf(err) != task.Cancelled {
		t.Errorf("of an ended task: %v", err)
	}
	if _, err := s.MakeLease(ctx, task.Lent{Lease: task.Lease{ID: "l-8"}, Task: "t-none"}); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("of no task: %v", err)
	}
}

// However lending and revoking fall together, nothing of a revoked credential
// is active afterwards.
func TestLendingAndRevokingAtOnce(t *testing.T) {
	s := open(t)
	of := create(t, s, task.Task{RequestedBy: "alice"})
	for round := range 20 {
		c := aCredential(fmt.Sprint("c", round))
		must(t, s.AddCredential(t.Context(), c, []byte("x")))
		var wg sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		note := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
		for n := range 4 {
			wg.Go(func() {
				_, err := s.MakeLease(t.Context(), leaseOf(of, c, fmt.Sprintf("l-%d-%d", round, n)))
				if task.ReasonOf(err) != task.PolicyCredential {
					note(err)
				}
			})
		}
		wg.Go(func() {
			_, _, err := s.EndCredential(t.Context(), c.Name, time.Now(), round%2 == 0)
			note(err)
		})
		wg.Wait()
		must(t, errors.Join(errs...))
	}
	list, err := s.Leases(t.Context(), of.ID)
	must(t, err)
	for _, l := range list {
		if l.Active() {
			t.Errorf("active: %+v", l)
		}
	}
}
