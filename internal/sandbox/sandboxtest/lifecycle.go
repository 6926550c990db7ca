package sandboxtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s suite) testCreate(t *testing.T) {
	info := Create(t, s.driver, sandbox.Spec{Task: "t-x", Role: "manual"})
	if info.State != sandbox.Live || info.PID <= 0 || info.Kernel == "" || info.CreatedAt.IsZero() {
		t.Errorf("info: %+v", info)
	}
	if info.Task != "t-x" || info.Role != "manual" || info.Root != "host" || info.Limits.Memory == 0 || info.Expires.IsZero() {
		t.Errorf("the spec with its defaults is not in the info: %+v", info)
	}
	again, err := s.driver.Create(Context(t), sandbox.Spec{ID: info.ID})
	if err != nil || again.PID != info.PID || !again.CreatedAt.Equal(info.CreatedAt) {
		t.Errorf("creating it again: %+v, %v", again, err)
	}
	infos, err := s.driver.List(Context(t))
	if err != nil || len(infos) != 1 || infos[0].ID != info.ID {
		t.Errorf("list: %+v, %v", infos, err)
	}
}

func (s suite) testCreateConcurrently(t *testing.T) {
	ids := make([]string, 10)
	for i := range ids {
		ids[i] = ID()
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		pids = map[string]map[int]bool{}
	)
	for i := range 50 {
		wg.Go(func() {
			id := ids[i%len(ids)]
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			info, err := s.driver.Create(ctx, sandbox.Spec{ID: id})
			if err != nil {
				t.Errorf("create: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if pids[id] == nil {
				pids[id] = map[int]bool{}
			}
			pids[id][info.PID] = true
		})
	}
	wg.Wait()
	kernels := map[int]bool{}
	for _, id := range ids {
		if len(pids[id]) != 1 {
			t.Errorf("sandbox %s has kernels %v", id, pids[id])
		}
		for pid := range pids[id] {
			kernels[pid] = true
		}
		wg.Go(func() {
			if err := s.driver.Destroy(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(kernels) != len(ids) {
		t.Errorf("%d kernels for %d sandboxes", len(kernels), len(ids))
	}
}

func (s suite) testRefusals(t *testing.T) {
	ctx := Context(t)
	for _, spec := range []sandbox.Spec{
		{},
		{ID: "sb-short"},
		{ID: "../../etc"},
		{ID: "sb-ABCDEFGHIJKLMNOP"},
		{ID: ID(), Root: "image"},
		{ID: ID(), Limits: task.Limits{Memory: 1}},
	} {
		_, err := s.driver.Create(ctx, spec)
		WantReason(t, "create "+spec.ID, err, task.InputInvalid)
	}
	unknown := ID()
	_, err := s.driver.Start(ctx, unknown, sandbox.Command{ID: "c", Argv: []string{"true"}})
	WantReason(t, "start in an unknown sandbox", err, task.InputNotFound)
	_, err = s.driver.Attach(ctx, unknown, "c", 0)
	WantReason(t, "attach in an unknown sandbox", err, task.InputNotFound)
	WantReason(t, "signal in an unknown sandbox", s.driver.Signal(ctx, unknown, "c", 15), task.InputNotFound)

	id := Create(t, s.driver, sandbox.Spec{}).ID
	_, err = s.driver.Attach(ctx, id, "never-started", 0)
	WantReason(t, "attach to an unknown command", err, task.InputNotFound)
	WantReason(t, "signal to an unknown command", s.driver.Signal(ctx, id, "never-started", 15), task.InputNotFound)
	for _, cmd := range []sandbox.Command{
		{Argv: []string{"true"}},
		{ID: "../x", Argv: []string{"true"}},
		{ID: "c"},
		{ID: "c", Argv: []string{"true"}, User: "daemon"},
		{ID: "c", Argv: []string{"a\x00b"}},
	} {
		_, err := s.driver.Start(ctx, id, cmd)
		WantReason(t, "start "+cmd.ID, err, task.InputInvalid)
	}
}

func (s suite) testDestroy(t *testing.T) {
	ctx := Context(t)
	id := ID()
	if err := s.driver.Destroy(ctx, id); err != nil {
		t.Errorf("destroying an unknown sandbox: %v", err)
	}
	first := Create(t, s.driver, sandbox.Spec{ID: id})
	if _, err := s.driver.Start(ctx, id, sandbox.Command{ID: "c", Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	stream, err := s.driver.Attach(ctx, id, "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Next()
		ended <- err
	}()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := s.driver.Destroy(ctx, id); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the stream of a destroyed sandbox goes on")
		}
	case <-ctx.Done():
		t.Error("the stream of a destroyed sandbox never ends")
	}
	_, err = s.driver.Start(ctx, id, sandbox.Command{ID: "d", Argv: []string{"true"}})
	WantReason(t, "start after destroy", err, task.InputNotFound)

	// The name can be used again, and nothing of the first is in the second.
	second := Create(t, s.driver, sandbox.Spec{ID: id})
	if second.PID == first.PID {
		t.Error("the second sandbox is the first")
	}
	if _, err := s.driver.Attach(ctx, id, "c", 0); err == nil {
		t.Error("the second sandbox knows the first one's command")
	}
}

func (s suite) testExpiry(t *testing.T) {
	want := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	info := Create(t, s.driver, sandbox.Spec{Expires: want})
	if !info.Expires.Equal(want) {
		t.Errorf("expires %v, want %v", info.Expires, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	id := ID()
	if _, err := s.driver.Create(ctx, sandbox.Spec{ID: id}); !errors.Is(err, context.Canceled) {
		t.Errorf("create with an ended context: %v", err)
	}
	infos, err := s.driver.List(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.ID == id {
			t.Error("a create that was given up left a sandbox")
		}
	}
}
