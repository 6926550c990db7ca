// Package temporal runs the stages of tasks durably on Temporal: one short
// workflow a task, one activity a stage. It is the only room that speaks to
// the engine.
//
// Words. The engine is the server that keeps how far each task came. A round
// is one activity of a stage. A link is a connection to the engine with the
// worker on it; when the engine comes back at another address a new link is
// made.
//
// The engine holds no facts and no content: payloads are sealed with a key of
// ours and carry ids and outcomes only. An engine file can be thrown away;
// Reconcile then starts every open task again with fresh sandboxes.
//
// Not promised: that a call of Start or Cancel reached the engine. Both are
// hints; the record of what is open and what is to be cancelled is the
// caller's, and Reconcile acts on it.
package temporal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	taskQueue        = "cofferdam-tasks"
	defaultNamespace = "cofferdam"
	// callLimit bounds one call of Start or Cancel; Reconcile does it later.
	callLimit = 5 * time.Second
	// reconcileEvery is how long an open task may be without a workflow.
	reconcileEvery = 10 * time.Second
)

// Options say how the engine is reached. AddressFile or Address, KeyFile,
// Steps, Open and Logger are required.
type Options struct {
	AddressFile string      // the engine's boot.json, read again when the engine is gone
	Address     string      // of an existing cluster, instead of AddressFile
	Namespace   string      // default "cofferdam"
	TLS         *tls.Config // for an existing cluster; nil: none
	TokenFile   string      // the bearer token; empty: none is shown
	KeyFile     string      // 64 hex digits a line; made when absent
	Steps       Steps
	// Open lists every task that has not ended.
	Open   func(ctx context.Context) ([]stage.Open, error)
	Logger *slog.Logger
}

// Engine starts and cancels tasks, and does their work while it is connected.
type Engine struct {
	opts       Options
	clientOpts client.Options
	keys       *keys
	activities *activities
	stop       context.CancelFunc
	stopped    sync.WaitGroup

	mu      sync.Mutex
	current client.Client
	changed chan struct{} // closed when current changes
}

// Connect returns at once and keeps a link to the engine from then on, waiting
// for an engine that is not there. ctx bounds the engine's life, not the call.
func Connect(ctx context.Context, o Options) (*Engine, error) {
	if (o.AddressFile == "") == (o.Address == "") {
		return nil, errors.New("engine: exactly one of address file and address is needed")
	}
	if o.Namespace == "" {
		o.Namespace = defaultNamespace
	}
	keys, err := loadKeys(o.KeyFile)
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: o, keys: keys, changed: make(chan struct{}), activities: &activities{steps: o.Steps, log: o.Logger}}
	e.clientOpts = clientOptions(o, keys)
	ctx, e.stop = context.WithCancel(ctx)
	e.stopped.Go(func() { e.keepLink(ctx) })
	e.stopped.Go(func() { e.reconcileLoop(ctx) })
	return e, nil
}

// Close takes no more work, leaves what runs to be taken up again, and
// disconnects.
func (e *Engine) Close() {
	e.stop()
	e.stopped.Wait()
}

// Ready waits until the engine answers.
func (e *Engine) Ready(ctx context.Context) error {
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	if _, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{}); err != nil {
		return away(err)
	}
	return nil
}

// Start makes sure that the task has a workflow. It is idempotent. A failure
// is task.InfraControlAway: the task is started later.
func (e *Engine) Start(ctx context.Context, taskID string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	_, err = c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: taskID, TaskQueue: taskQueue,
		// A workflow that failed or was terminated left an open task behind; one
		// that completed closed its task.
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflowName, taskInput{Task: taskID})
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if err == nil || errors.As(err, &started) {
		return nil
	}
	return away(err)
}

// Cancel asks the task's workflow to end. It is idempotent, and no error when
// the task has ended.
func (e *Engine) Cancel(ctx context.Context, taskID string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := e.Start(ctx, taskID); err != nil {
		return err
	}
	c, err := e.client(ctx)
	if err != nil {
		return err
	}
	err = c.CancelWorkflow(ctx, taskID, "")
	var ended *serviceerror.NotFound
	if err == nil || errors.As(err, &ended) {
		return nil
	}
	return away(err)
}

func away(err error) error {
	return task.Fail(task.InfraControlAway, "the engine did not answer; the task is not lost and is taken up when it does", err)
}

// client waits for the current client.
func (e *Engine) client(ctx context.Context) (client.Client, error) {
	for {
		e.mu.Lock()
		c, changed := e.current, e.changed
		e.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, away(ctx.Err())
		}
	}
}

func (e *Engine) setClient(c client.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = c
	close(e.changed)
	e.changed = make(chan struct{})
}

// reconcileLoop starts open tasks that have no workflow and cancels those that
// are to be cancelled.
func (e *Engine) reconcileLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := e.client(ctx); err == nil {
			if err := e.Reconcile(ctx); err != nil && ctx.Err() == nil {
				e.opts.Logger.Warn("open tasks not reconciled", "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconcileEvery):
		}
	}
}

// Reconcile makes the engine agree with the record of open tasks once.
func (e *Engine) Reconcile(ctx context.Context) error {
	open, err := e.opts.Open(ctx)
	if err != nil {
		return fmt.Errorf("open tasks: %w", err)
	}
	var errs []error
	for _, t := range open {
		if t.CancelRequested {
			errs = append(errs, e.Cancel(ctx, t.ID))
		} else {
			errs = append(errs, e.Start(ctx, t.ID))
		}
	}
	return errors.Join(errs...)
}
