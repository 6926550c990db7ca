//go:build root

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

var errReached = errors.New("the state change was seen")

// Every daemon is killed at every state change of a task. The task ends as if
// nothing had happened, the victim is another process afterwards, and the
// agent's effect outside was had once.
func TestKillAtEveryStateChange(t *testing.T) {
	up := serve(t, "127.0.0.1:0")
	ns := testenv.Names(t, map[string]string{"counter.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS:            ns.Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: counter.test, ports: [%d]}\n", up.port),
	})
	policy := fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: counter.test, ports: [%d]}]}}\n", up.port)
	// The agent draws its nonce once and tries until it is told that the effect
	// was counted: a cut connection is tried again, a second agent shows.
	agent := fmt.Sprintf(`nonce=$(cat /proc/sys/kernel/random/uuid)
until curl -sf -m 5 -d nonce=$nonce http://counter.test:%d/effect; do sleep 0.2; done
echo 42 > answer.txt; sleep 1`, up.port)
	before := e.Census()
	source := bundle(t, e, small(t))

	for _, victim := range []string{"cofferdamd", "worker", "gateway", "engine", "supervisor"} {
		for _, stage := range []string{"provision", "checkout", "setup", "agent", "export", "verify", "close"} {
			t.Run(victim+" at "+stage, func(t *testing.T) {
				up.mu.Lock()
				clear(up.effects)
				up.mu.Unlock()
				id := submit(t, e, api.TaskRequest{
					Repo: source, Policy: policy, Setup: "sleep 0.5", Agent: sh(agent), Verify: "sleep 0.5; ./check.sh",
				}).ID
				reach(t, e, id, stage)
				if got, err := e.Client.Task(context.Background(), id); err != nil || got.Ended() {
					t.Fatalf("nothing in flight: %+v, %v", got.State, err)
				}
				kill(t, e, victim)
				got := e.WaitTask(id, patience)
				must(t, e, got, api.Succeeded, "")
				processes, effects := up.runs()
				if processes != 1 {
					t.Errorf("%d agents had an effect outside, want 1", processes)
				}
				if effects != 1 && victim != "gateway" && victim != "supervisor" {
					t.Errorf("%d effects outside, want 1", effects)
				}
			})
		}
	}
	// A worker tells of its new gateway with its next hello.
	testenv.Until(t, patience, "doctor to be content", func() bool {
		_, err := e.CLI("doctor", "--data", e.Data)
		return err == nil
	})
	e.Unchanged(before)
}

// reach waits for the event that says the stage runs.
func reach(t *testing.T, e *testenv.Env, id, stage string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := e.Client.WatchTask(ctx, id, 0, func(ev api.Event) error {
		if ev.Type == "stage" && stageRuns(ev, stage) {
			return errReached
		}
		return nil
	})
	if !errors.Is(err, errReached) {
		t.Fatalf("the stage %s was not reached: %v", stage, err)
	}
}

// kill kills the victim and waits until another one is there.
func kill(t *testing.T, e *testenv.Env, victim string) {
	t.Helper()
	if victim != "supervisor" {
		e.Reborn(victim, e.Kill(victim))
		return
	}
	old, err := e.Boot("cofferdamd")
	if err != nil {
		t.Fatal(err)
	}
	pid := e.KillSupervisor()
	testenv.Until(t, patience, "the supervisor to be gone", func() bool {
		for _, p := range e.Processes() {
			if p.PID == pid {
				return false
			}
		}
		return true
	})
	e.Up()
	e.Reborn("cofferdamd", old)
	if e.Supervisor() == pid {
		t.Fatal("the supervisor was not killed")
	}
}
