package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// request waits for an answer. All requests may be asked twice.
type request struct {
	kind    guest.Type
	payload []byte
	command string            // of Start
	answer  chan guest.Answer // holds one
}

// call asks the guest and waits for its answer, over as many epochs as it takes.
func (c *Conn) call(ctx context.Context, kind guest.Type, payload any) (guest.Answer, error) {
	var text []byte
	if payload != nil {
		text = guest.Marshal(payload)
	}
	command := ""
	if cmd, ok := payload.(guest.Command); ok {
		command = cmd.ID
	}
	return c.request(ctx, kind, text, command)
}

// request is call with a payload that is encoded already.
func (c *Conn) request(ctx context.Context, kind guest.Type, payload []byte, command string) (guest.Answer, error) {
	r := &request{kind: kind, payload: payload, command: command, answer: make(chan guest.Answer, 1)}
	if len(r.payload) > guest.MaxMessage {
		return guest.Answer{}, guest.Errorf(guest.ReasonInvalid, "the request has %d bytes; the most is %d", len(r.payload), guest.MaxMessage)
	}
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.requests[id] = r
	if c.established {
		c.send(kind, id, r.payload)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.requests, id)
		c.mu.Unlock()
	}()
	select {
	case a := <-r.answer:
		if a.Error != nil {
			return a, a.Error
		}
		return a, nil
	case <-ctx.Done():
		return guest.Answer{}, ctx.Err()
	case <-c.done:
		return guest.Answer{}, ErrClosed
	}
}

// repeat asks again what has no answer, in order. The caller holds mu.
func (c *Conn) repeat() {
	ids := make([]uint64, 0, len(c.requests))
	for id := range c.requests {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		c.send(c.requests[id].kind, id, c.requests[id].payload)
	}
}

// reply hands an answer to whoever waits for it.
func (c *Conn) reply(f guest.Frame) {
	var answer guest.Answer
	if err := json.Unmarshal(f.Payload, &answer); err != nil {
		c.drop(f, "not an answer")
		return
	}
	if answer.Error != nil {
		answer.Error = &guest.Error{Reason: cleanReason(answer.Error.Reason), Text: cleanText(answer.Error.Text)}
	}
	c.mu.Lock()
	r, t := c.requests[f.Stream], c.transfers[f.Stream]
	delete(c.requests, f.Stream)
	delete(c.transfers, f.Stream)
	c.mu.Unlock()
	switch {
	case r != nil:
		if r.kind == guest.Start {
			c.startedReply(r, answer)
		}
		r.answer <- answer
	case t != nil:
		c.transferred(t, answer)
	}
}

// cleanReason lets the guest give no reasons but those it has.
func cleanReason(reason string) string {
	switch reason {
	case guest.ReasonInvalid, guest.ReasonNotFound, guest.ReasonDisk, guest.ReasonPIDs, guest.ReasonInodes, guest.ReasonFiles,
		guest.ReasonConflict, guest.ReasonSize, guest.ReasonProtected:
		return reason
	}
	return guest.ReasonInternal
}

// Configure sets the sandbox up. Applying the same again changes nothing.
func (c *Conn) Configure(ctx context.Context, cfg guest.Config) error {
	_, err := c.call(ctx, guest.Configure, cfg)
	return wrap("configure", err)
}

// Ping asks whether the guest answers.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, guest.Ping, nil)
	return wrap("ping", err)
}

// Shutdown ends every process of the sandbox but the guest.
func (c *Conn) Shutdown(ctx context.Context) error {
	_, err := c.call(ctx, guest.Shutdown, nil)
	return wrap("shutdown", err)
}

// Signal sends a signal to the command's whole tree, children that outlived it
// included. With SIGKILL it returns when none is left. A command without
// processes is no error.
func (c *Conn) Signal(ctx context.Context, id string, signal int) error {
	cmd, err := c.journals.find(id)
	if err != nil {
		return err
	}
	cmd.mu.Lock()
	over := cmd.record.Closed && len(cmd.record.Status.Children) == 0
	cmd.mu.Unlock()
	if over {
		return nil
	}
	return c.SignalPart(ctx, guest.SignalRequest{ID: id, Signal: signal})
}

// SignalPart sends a signal to what the request names: the command's whole tree,
// the process group of its main process, or one process of its tree.
func (c *Conn) SignalPart(ctx context.Context, r guest.SignalRequest) error {
	if _, err := c.journals.find(r.ID); err != nil {
		return err
	}
	_, err := c.call(ctx, guest.Signal, r)
	return wrap("signal", err)
}

// Attach returns the command's output from offset on, and its end. A negative
// offset is refused; one beyond the output waits for it.
func (c *Conn) Attach(ctx context.Context, id string, offset int64) (*Stream, error) {
	return c.journals.Attach(ctx, id, offset)
}

// Status returns where a command stands.
func (c *Conn) Status(id string) (guest.Status, error) { return c.journals.Status(id) }

// Statuses returns where the commands stand, by id.
func (c *Conn) Statuses() []guest.Status { return c.journals.Statuses() }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
