//go:build root

package temporal

import (
	"context"
	"encoding/hex"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

var update = flag.Bool("update", false, "record the histories in testdata again")

// TestRecordHistories runs tasks against the real engine and keeps their
// histories for TestReplay. Histories of released versions are kept: copy them
// aside before an update that changes what the workflow does.
func TestRecordHistories(t *testing.T) {
	if !*update {
		t.Log("histories are recorded with -update only; TestReplay replays them")
		return
	}
	for name, s := range map[string]*script{
		"succeeded": {},
		"failed":    {stage: failAt(task.Agent, task.AgentFailed, 1)},
		"retried":   {stage: failAt(task.Setup, task.InfraWorkerLost, 4)},
		"exhausted": {stage: failAt(task.Provision, task.InfraSandboxCreate, -1)},
		"cancelled": {stage: func(ctx context.Context, at task.StageName, _ stage.Input) stage.Outcome {
			if at != task.Agent {
				return stage.Outcome{}
			}
			<-ctx.Done()
			return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled}
		}},
	} {
		t.Run(name, func(t *testing.T) { record(t, name, s) })
	}
}

func record(t *testing.T, name string, steps *script) {
	st := &stand{folder: folder(t.TempDir()), t: t}
	st.startEngine()
	t.Cleanup(func() { st.kill(st.engine) })
	dir := string(st.folder)
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(hex.EncodeToString(historyKey())), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Connect(t.Context(), Options{
		AddressFile: filepath.Join(dir, "engine", "boot.json"), TokenFile: filepath.Join(dir, "engine", "token"),
		KeyFile: filepath.Join(dir, "key"), Steps: steps, Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) ([]stage.Open, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), testTask); err != nil {
		t.Fatal(err)
	}
	if name == "cancelled" {
		st.wait("the agent runs", func() bool { return steps.called("agent 1.1") })
		if err := e.Cancel(t.Context(), testTask); err != nil {
			t.Fatal(err)
		}
	}
	c, err := e.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st.wait("the workflow ends", func() bool {
		d, err := c.DescribeWorkflowExecution(t.Context(), testTask, "")
		return err == nil && d.WorkflowExecutionInfo.Status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	})
	var h historypb.History
	for events := c.GetWorkflowHistory(t.Context(), testTask, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		h.Events = append(h.Events, event)
	}
	b, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata/history", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata/history", "1-"+name+".json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
