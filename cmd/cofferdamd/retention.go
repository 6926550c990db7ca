package main

import (
	"context"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/output"
	"github.com/cofferdam/cofferdam/internal/output/retention"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

// pass is how often what is older than it is kept is looked for.
const pass = time.Minute

// kept is the store, which tells the blobs when a reference to one of them is on
// record: until then a blob that was stored stays.
type kept struct {
	*store.Store
	blobs *output.Blobs
}

// AddOutput records an output whose bytes were stored.
func (k kept) AddOutput(ctx context.Context, id string, o task.Output) error {
	err := k.Store.AddOutput(ctx, id, o)
	if err == nil {
		k.blobs.Settle(o.Digest)
	}
	return err
}

// CreateTask makes a task; its bundle is there before and afterwards.
func (k kept) CreateTask(ctx context.Context, t task.Task, requestDigest string) (task.Task, bool, error) {
	bundle := t.Spec.Repo.Bundle
	if bundle == "" {
		return k.Store.CreateTask(ctx, t, requestDigest)
	}
	if err := k.blobs.Hold(ctx, bundle); err != nil {
		var f *task.Failure
		if errors.As(err, &f) && f.Reason == task.InputNotFound {
			return task.Task{}, false, task.Fail(task.InputRepository, "body.repo.bundle: no such bundle; upload it to /v1/bundles first", err)
		}
		return task.Task{}, false, err
	}
	defer k.blobs.Settle(bundle)
	made, created, err := k.Store.CreateTask(ctx, t, requestDigest)
	if err == nil {
		k.blobs.Settle(bundle) // of the upload
	}
	return made, created, err
}

// removal is what the API removes tasks with.
type removal struct {
	*retention.Keeper
	*store.Store
}

// Remove removes a task that has ended.
func (r removal) Remove(ctx context.Context, id, by string) (task.Removal, error) {
	return r.Keeper.Remove(ctx, id, by)
}

// keeper removes what is older than it is kept, and what is asked to go.
func (p *plane) keeper() *retention.Keeper {
	return retention.New(retention.Options{
		Rows: p.store, Blobs: p.blobs, Audit: p.audit, Log: p.log, Now: time.Now,
		Tasks: p.flags.keepTasks, Outputs: p.flags.keepOutputs,
	})
}

// retain starts the keeper; what it returns waits for its end, which comes with
// that of ctx.
func (p *plane) retain(ctx context.Context) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	ticker, done := time.NewTicker(pass), make(chan struct{})
	go func() {
		defer close(done)
		defer ticker.Stop()
		p.retention.Run(ctx, ticker.C)
	}()
	return func() {
		cancel()
		<-done
	}
}
