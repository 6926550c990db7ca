package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/host"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/command"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/task"
)

// dialLimit bounds the wait for a guest: one that is there answers at once.
const dialLimit = 30 * time.Second

// dial takes the control channel.
func (b *box) dial(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := host.Dial(ctx, host.Options{
		In: b.fifos[0], Out: b.fifos[1], Dir: b.commandsDir(), Logger: log.With("sandbox", b.record.Spec.ID),
	})
	if err != nil {
		return fmt.Errorf("the sandbox's first process does not answer: %w", err)
	}
	b.conn, b.journals = conn, conn.Journals()
	return nil
}

func (b *box) commandsDir() string { return filepath.Join(b.dir, "commands") }

func (d *Driver) guestConfig(authority []byte) guest.Config {
	return guest.Config{AuthorityPEM: authority, BaseEnv: lower.BaseEnv(d.cfg.HostPath, d.cfg.HostRoot)}
}

func (b *box) configure(ctx context.Context, cfg guest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	return b.conn.Configure(ctx, cfg)
}

// endCommands tells the commands of a dead sandbox, and whoever waits for them.
func (b *box) endCommands(reason task.Reason) error {
	if b.conn != nil {
		return b.conn.Lose(string(reason))
	}
	journals, err := host.OpenJournals(b.commandsDir())
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.journals = journals
	b.mu.Unlock()
	return errors.Join(journals.Lose(string(reason)), journals.Close())
}

func (b *box) held() *host.Journals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.journals
}

// Start implements sandbox.Driver. For a dead sandbox it still returns a command
// that was started before.
func (d *Driver) Start(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Status, error) {
	b, err := d.find(id)
	if err != nil {
		return sandbox.Status{}, err
	}
	spec := b.spec()
	if err := command.Check(cmd, spec); err != nil {
		return sandbox.Status{}, err
	}
	if dead := b.dead(); dead != nil {
		if status, err := b.held().Status(cmd.ID); err == nil {
			return command.FromGuest(status), nil
		}
		return sandbox.Status{}, dead
	}
	status, err := b.conn.Start(ctx, command.ToGuest(cmd, spec.Limits))
	if err != nil {
		return sandbox.Status{}, b.failure(err)
	}
	return command.FromGuest(status), nil
}

// Attach implements sandbox.Driver. What a dead sandbox's commands wrote can be
// read until it is destroyed.
func (d *Driver) Attach(ctx context.Context, id, name string, offset int64) (sandbox.Stream, error) {
	b, err := d.find(id)
	if err != nil {
		return nil, err
	}
	journals := b.held()
	if journals == nil {
		return nil, b.failure(host.ErrClosed)
	}
	s, err := journals.Attach(ctx, name, offset)
	if err != nil {
		return nil, b.failure(err)
	}
	return stream{box: b, Stream: s}, nil
}

// stream gives a guest's stream in the words of sandbox.
type stream struct {
	box *box
	*host.Stream
}

// Next implements sandbox.Stream.
func (s stream) Next() (sandbox.Chunk, error) {
	chunk, err := s.Stream.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return sandbox.Chunk{}, io.EOF
		}
		return sandbox.Chunk{}, s.box.failure(err)
	}
	return sandbox.Chunk{Fd: chunk.Fd, Offset: chunk.Offset, Data: chunk.Data}, nil
}

// Status implements sandbox.Stream.
func (s stream) Status() sandbox.Status { return command.FromGuest(s.Stream.Status()) }

// Signal implements sandbox.Driver.
func (d *Driver) Signal(ctx context.Context, id, name string, signal int) error {
	return d.SignalPart(ctx, id, name, sandbox.Signal{Number: signal})
}

// SignalPart implements sandbox.Console.
func (d *Driver) SignalPart(ctx context.Context, id, name string, s sandbox.Signal) error {
	b, err := d.alive(id)
	if err != nil {
		return err
	}
	return b.failure(command.Signal(ctx, b.conn, name, s))
}

// Inspect implements sandbox.Console. Of a dead sandbox it tells what is on disk.
func (d *Driver) Inspect(ctx context.Context, id, name string) ([]sandbox.Status, error) {
	b, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if b.dead() == nil {
		list, err := command.Inspect(ctx, b.conn, name)
		return list, b.failure(err)
	}
	if name == "" {
		return b.statuses(), nil
	}
	status, err := b.held().Status(name)
	if err != nil {
		return nil, b.failure(err)
	}
	return []sandbox.Status{command.FromGuest(status)}, nil
}

// Input implements sandbox.Console.
func (d *Driver) Input(ctx context.Context, id, name string, in sandbox.Input) (sandbox.Taken, error) {
	b, err := d.alive(id)
	if err != nil {
		return sandbox.Taken{}, err
	}
	taken, err := command.Input(ctx, b.conn, name, in)
	return taken, b.failure(err)
}

// Resize implements sandbox.Console.
func (d *Driver) Resize(ctx context.Context, id, name string, size sandbox.Size) error {
	b, err := d.alive(id)
	if err != nil {
		return err
	}
	return b.failure(command.Resize(ctx, b.conn, name, size))
}

// Put implements sandbox.Driver.
func (d *Driver) Put(ctx context.Context, id, dir string, tar io.Reader) error {
	b, err := d.alive(id)
	if err != nil {
		return err
	}
	return b.failure(b.conn.Put(ctx, dir, tar))
}

// Get implements sandbox.Driver.
func (d *Driver) Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error) {
	b, err := d.alive(id)
	if err != nil {
		return nil, err
	}
	r, err := b.conn.Get(ctx, path, exclude)
	if err != nil {
		return nil, b.failure(err)
	}
	return download{box: b, ReadCloser: r}, nil
}

type download struct {
	box *box
	io.ReadCloser
}

// Read implements io.Reader.
func (r download) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.box.failure(err)
	}
	return n, err
}

func (d *Driver) alive(id string) (*box, error) {
	b, err := d.find(id)
	if err != nil {
		return nil, err
	}
	return b, b.dead()
}

// failure gives an error of the guest's side its reason code.
func (b *box) failure(err error) error {
	var (
		refused *guest.Error
		failure *task.Failure
	)
	switch {
	case err == nil, errors.As(err, &failure):
		return err
	case errors.As(err, &refused):
		return task.Fail(task.Reason(refused.Reason), refused.Text, nil)
	case errors.Is(err, host.ErrNotFound):
		return task.Fail(task.InputNotFound, err.Error(), nil)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if dead := b.dead(); dead != nil {
		return dead
	}
	if errors.Is(err, host.ErrClosed) {
		if b.isDestroyed() {
			return task.Fail(task.InputNotFound, fmt.Sprintf("sandbox %q was destroyed", b.spec().ID), err)
		}
		return task.Fail(task.InfraWorkerLost, "the worker lets go of the sandbox; ask again", err)
	}
	if errors.Is(err, host.ErrInterrupted) {
		return task.Fail(task.InfraWorkerLost, "the transfer was interrupted; try again from its start", err)
	}
	return task.Fail(task.InfraInternal, "the worker can't do that now", err)
}

func (b *box) statuses() []sandbox.Status {
	journals := b.held()
	if journals == nil {
		return nil
	}
	var out []sandbox.Status
	for _, s := range journals.Statuses() {
		out = append(out, command.FromGuest(s))
	}
	return out
}
