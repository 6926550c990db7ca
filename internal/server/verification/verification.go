// Package verification reads a task's evidence for who asks about the task. The bytes
// are ours, and what they quote was made harmless when they were written.
package verification

import (
	"context"
	"encoding/json"
	"io"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// most bounds what is read of the evidence.
const most = 4 << 20

// Blobs opens stored bytes. Implemented by output.
type Blobs interface {
	Open(ctx context.Context, d task.Digest) (io.ReadCloser, error)
}

// Of is what was verified of the task; nil: nothing was. Evidence that can't be read
// is told, and the task is shown without.
func Of(ctx context.Context, blobs Blobs, t task.Task) *api.Verification {
	for _, o := range t.Outputs {
		if o.Kind == "evidence" {
			return read(ctx, blobs, o)
		}
	}
	return nil
}

func read(ctx context.Context, blobs Blobs, o task.Output) *api.Verification {
	without := func(why string) *api.Verification {
		return &api.Verification{Digest: string(o.Digest), Problem: why, Runs: []api.VerifyRun{}, Flags: append([]string{}, o.Flags...)}
	}
	if o.Removed != nil {
		return without("its bytes were removed; outputs are kept for a time that the operator sets")
	}
	from, err := blobs.Open(ctx, o.Digest)
	if err != nil {
		return without("its bytes can't be opened")
	}
	defer func() { _ = from.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	v := &api.Verification{}
	if err != nil || len(text) > most || json.Unmarshal(text, v) != nil {
		return without("its bytes can't be read")
	}
	v.Digest = string(o.Digest)
	return v
}
