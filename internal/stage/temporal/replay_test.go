package temporal

import (
	"log/slog"
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// historyKey seals the recorded histories.
func historyKey() []byte { return []byte("the key of the recorded history!") }

// Histories that were recorded from a real engine still replay: a change of the
// workflow that breaks tasks in flight shows here. They are recorded by
//
//	go test -tags root ./internal/stage/temporal -run TestRecordHistories -update
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/history/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 4 {
		t.Fatalf("only %d recorded histories", len(files))
	}
	data, failure := converters(keysOf(t, historyKey()))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DataConverter: data, FailureConverter: failure})
			if err != nil {
				t.Fatal(err)
			}
			r.RegisterWorkflowWithOptions(taskWorkflow, workflow.RegisterOptions{Name: workflowName})
			if err := r.ReplayWorkflowHistoryFromJSONFile(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), file); err != nil {
				t.Error(err)
			}
		})
	}
}
