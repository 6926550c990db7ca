//go:build soak

package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
)

// stages is a workflow of about the size of a task: a dozen steps, and each
// brings a payload.
func stages(ctx workflow.Context, payload []byte) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for range 12 {
		var out []byte
		if err := workflow.ExecuteActivity(ctx, "step", payload).Get(ctx, &out); err != nil {
			return err
		}
	}
	return nil
}

// What workflows leave in memory when they have ended is bounded.
func TestMemoryOfEndedWorkflows(t *testing.T) {
	folder := t.TempDir()
	e, err := Start(t.Context(), Options{Folder: folder, Listen: "127.0.0.1:0", Boot: NewBoot(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Fatal: func() { panic("engine") }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	token, err := os.ReadFile(filepath.Join(folder, "token"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: e.Address, Namespace: Namespace, Logger: silent{},
		Credentials:       client.NewAPIKeyStaticCredentials(strings.TrimSpace(string(token))),
		ConnectionOptions: client.ConnectionOptions{TLSDisabled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflowWithOptions(stages, workflow.RegisterOptions{Name: "stages"})
	w.RegisterActivityWithOptions(func(_ context.Context, p []byte) ([]byte, error) { return p, nil }, activity.RegisterOptions{Name: "step"})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	payload := bytes.Repeat([]byte("x"), 2000)
	wave := func(n, size int) float64 {
		var g errgroup.Group
		g.SetLimit(16)
		for i := range size {
			g.Go(func() error {
				id := fmt.Sprintf("w-%d-%d", n, i)
				if _, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "q"}, "stages", payload); err != nil {
					return err
				}
				for { // Get may answer twenty seconds late
					d, err := c.DescribeWorkflowExecution(t.Context(), id, "")
					if err != nil || d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
						return err
					}
					<-time.After(50 * time.Millisecond)
				}
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	// Six waves fill the cache and more; what six more add is growth.
	var heap []float64
	for n := range 12 {
		heap = append(heap, wave(n, 100))
		t.Logf("after %d workflows: %.1f MiB live, %.1f MiB resident", 100*(n+1), heap[n], resident())
	}
	// Unbounded, six hundred workflows take 12 MiB.
	if grown := heap[11] - heap[5]; grown > 6 {
		t.Errorf("the last 600 workflows took %.1f MiB", grown)
	}
}

// resident is the anonymous memory of this process in MiB, what the collector has
// not given back included.
func resident() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}
