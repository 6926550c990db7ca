package store

import (
	"errors"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestPlacementOutlivesTheProgram(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	const id = "sb-aaaaaaaaaaaaaaaa"
	where := func(want string) {
		t.Helper()
		if got, err := s.SandboxWorker(t.Context(), id); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	where("")
	must(t, s.SetSandboxWorker(t.Context(), id, "machine-2"))
	must(t, s.SetSandboxWorker(t.Context(), id, "machine-2"))
	must(t, s.Close())
	s, err = Open(t.Context(), Options{Dir: dir})
	must(t, err)
	defer s.Close()
	where("machine-2")
	// A sandbox never moves, and nonsense is not kept.
	for _, c := range [][2]string{{id, "machine-1"}, {id, ""}, {"../x", "machine-1"}} {
		err := s.SetSandboxWorker(t.Context(), c[0], c[1])
		if failure, ok := errors.AsType[*task.Failure](err); !ok || failure.Reason != task.InfraInternal {
			t.Errorf("%q: %v", c, err)
		}
	}
	where("machine-2")
	must(t, s.ForgetSandboxWorker(t.Context(), id))
	must(t, s.ForgetSandboxWorker(t.Context(), id))
	where("")
	must(t, s.SetSandboxWorker(t.Context(), id, "machine-1"))
	where("machine-1")
}
