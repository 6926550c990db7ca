// Package host is being filled in; the signatures are final.
package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Errors.
var (
	ErrNotFound = errors.New("command not found") // no such command in this sandbox
	ErrClosed   = errors.New("channel closed")    // Close was called, or the FIFOs broke
)

// Options say what to dial. In, Out and Dir are required.
type Options struct {
	In     *os.File // written: the guest's standard input; opened O_RDWR|O_NONBLOCK
	Out    *os.File // read: the guest's standard output; opened O_RDWR|O_NONBLOCK
	Dir    string   // the journals' folder; made when absent
	Logger *slog.Logger
}

// Journals are the commands' outputs and statuses on disk.
type Journals struct{}

// OpenJournals opens a folder of a sandbox that has no guest any more.
func OpenJournals(dir string) (*Journals, error) { return nil, errors.ErrUnsupported }

func (j *Journals) Statuses() []guest.Status               { return nil }
func (j *Journals) Status(id string) (guest.Status, error) { return guest.Status{}, ErrNotFound }
func (j *Journals) Attach(ctx context.Context, id string, offset int64) (*Stream, error) {
	return nil, ErrNotFound
}

// Lose ends every command that has not ended with reason (such as limit.memory); streams then end.
func (j *Journals) Lose(reason string) error { return nil }
func (j *Journals) Close() error             { return nil }

// Stream.
type Stream struct{}

func (s *Stream) Next() (guest.Chunk, error) { return guest.Chunk{}, io.EOF }
func (s *Stream) Status() guest.Status       { return guest.Status{} }
func (s *Stream) Close() error               { return nil }

// Conn.
type Conn struct{}

// Dial repeats the hello until the guest answers or ctx ends. The guest need not have started yet.
func Dial(ctx context.Context, o Options) (*Conn, error)              { return nil, errors.ErrUnsupported }
func (c *Conn) Configure(ctx context.Context, cfg guest.Config) error { return nil }
func (c *Conn) Start(ctx context.Context, cmd guest.Command) (guest.Status, error) {
	return guest.Status{}, nil
}
func (c *Conn) Attach(ctx context.Context, id string, offset int64) (*Stream, error) { return nil, nil }
func (c *Conn) Status(id string) (guest.Status, error)                               { return guest.Status{}, nil }
func (c *Conn) Statuses() []guest.Status                                             { return nil }
func (c *Conn) Signal(ctx context.Context, id string, signal int) error              { return nil }
func (c *Conn) Put(ctx context.Context, dir string, tar io.Reader) error             { return nil }
func (c *Conn) Get(ctx context.Context, path string, exclude []string) (io.ReadCloser, error) {
	return nil, nil
}
func (c *Conn) Ping(ctx context.Context) error     { return nil }
func (c *Conn) Shutdown(ctx context.Context) error { return nil }

// Lose: call when the sandbox died (pidfd): ends all open commands with reason and closes the conn.
// Attach and Statuses still work on the closed conn.
func (c *Conn) Lose(reason string) error { return nil }

// Close lets go: the guest and its commands go on. Streams end with ErrClosed.
func (c *Conn) Close() error          { return nil }
func (c *Conn) Done() <-chan struct{} { return nil }
