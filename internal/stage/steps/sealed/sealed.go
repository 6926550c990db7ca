// Package sealed keeps the values that a task was lent out of what is kept and
// shown of it: the output of its commands, the events of its agent, and the texts
// of its stages.
//
// Words. Output is covered, so that each byte of a log stands where it stood in
// the command's own output and a log that broke off goes on at its end. Events
// and texts are sealed.
package sealed

import (
	"context"
	"errors"
	"io"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// Output covers what a command writes. What it has of standard output and
// standard error stays apart where who takes it keeps them apart.
type Output struct {
	to     io.Writer
	masker func() *mask.Masker
	by     map[int]*mask.Writer
}

// NewOutput returns an Output to a writer. masker is asked at each piece.
func NewOutput(to io.Writer, masker func() *mask.Masker) *Output {
	return &Output{to: to, masker: masker, by: map[int]*mask.Writer{}}
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) { return o.WriteFd(1, b) }

// WriteFd implements stage.FdWriter.
func (o *Output) WriteFd(fd int, b []byte) (int, error) {
	to, apart := o.to.(stage.FdWriter)
	if !apart {
		fd = 0 // all of it is one stream
	}
	w := o.by[fd]
	if w == nil {
		target := o.to
		if apart {
			target = one{to, fd}
		}
		w = mask.NewWriter(target, o.masker, mask.Options{Cover: true})
		o.by[fd] = w
	}
	return w.Write(b)
}

// one is one of the outputs of a command.
type one struct {
	to stage.FdWriter
	fd int
}

func (o one) Write(b []byte) (int, error) { return o.to.WriteFd(o.fd, b) }

// End gives what was held when the command has ended; when it was left, which an
// error says, that comes again.
func (o *Output) End(left error) error {
	errs := []error{left}
	for fd := range 3 {
		w := o.by[fd]
		switch {
		case w == nil:
		case left != nil:
			w.Abandon()
		default:
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}

// Facts seals what an agent said before it is kept.
type Facts struct {
	stage.Facts
	Masks stage.Masks
}

// AddAgentEvent implements stage.Facts.
func (f Facts) AddAgentEvent(ctx context.Context, id, key string, e task.AgentEvent) error {
	return f.Facts.AddAgentEvent(ctx, id, key, Event(f.Masks.Masker(id), e))
}

// Event seals what came from inside.
func Event(m *mask.Masker, e task.AgentEvent) task.AgentEvent {
	for _, text := range []*string{&e.Text, &e.Call, &e.Tool, &e.Input} {
		*text = m.Seal(*text)
	}
	return e
}

// Clean reads on as long as there is no value, and gives the error where the
// first one is. It is for what must not be altered.
func Clean(from io.Reader, m *mask.Masker, found error) io.Reader {
	if m == nil {
		return from
	}
	return &clean{mask.NewReader(io.NopCloser(from), m, mask.Options{Cover: true}), found}
}

type clean struct {
	from  *mask.Reader
	found error
}

func (c *clean) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if c.from.Masked() {
		return 0, c.found
	}
	return n, err
}
