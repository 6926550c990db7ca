package fleet_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

// instant is a driver whose commands have ended with one line of output before
// they are looked at: what is left is the way there and back.
type instant struct{ *workertest.Local }

func (instant) Start(_ context.Context, _ string, cmd sandbox.Command) (sandbox.Status, error) {
	return sandbox.Status{ID: cmd.ID, Phase: sandbox.CommandRunning, Started: true, StartedAt: time.Now()}, nil
}

func (instant) Attach(_ context.Context, _, command string, _ int64) (sandbox.Stream, error) {
	return &line{id: command}, nil
}

type line struct {
	id   string
	done bool
}

func (l *line) Next() (sandbox.Chunk, error) {
	if l.done {
		return sandbox.Chunk{}, io.EOF
	}
	l.done = true
	return sandbox.Chunk{Fd: 1, Data: []byte("hello\n")}, nil
}

func (l *line) Status() sandbox.Status {
	return sandbox.Status{ID: l.id, Phase: sandbox.CommandExited, Output: 6}
}

func (*line) Close() error { return nil }

// BenchmarkRun measures what the tunnel adds to a command.
func BenchmarkRun(b *testing.B) {
	c, dir := newControl(b, fleet.Options{}), b.TempDir()
	keep(b, newLinkWith(c.url, newDoor(dir, "machine-1", instant{workertest.New(dir + "/sandboxes")}, &workertest.Gateway{File: dir + "/epoch"})))
	c.connected(b, 1)
	id := newID()
	if _, _, err := c.Create(b.Context(), sandbox.Spec{ID: id}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Run(b.Context(), id, sandbox.Command{ID: "c", Argv: []string{"true"}}, 0, io.Discard, nil); err != nil {
			b.Fatal(err)
		}
	}
}
