package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Start starts a command and returns at once; the same id again, from whomever
// and also after a restart of the worker, returns the command that was started
// first. A program that can't be started is no error: the status says so.
func (c *Conn) Start(ctx context.Context, cmd guest.Command) (guest.Status, error) {
	if !guest.ValidID(cmd.ID) {
		return guest.Status{}, guest.Errorf(guest.ReasonInvalid, "command id %q is not 1 to 128 letters, digits, '.', '_' and '-'", cmd.ID)
	}
	if len(cmd.Argv) == 0 {
		return guest.Status{}, guest.Errorf(guest.ReasonInvalid, "command %q has no argv", cmd.ID)
	}
	entry, mine, err := c.journals.ask(cmd)
	if err != nil {
		return guest.Status{}, err
	}
	first := make(chan bool, 1)
	if mine {
		// Not under ctx: others may wait for the same answer.
		go func() { first <- c.launch(entry, cmd) }()
	} else {
		first <- false
	}
	select {
	case <-entry.decided:
	case <-ctx.Done():
		return guest.Status{}, fmt.Errorf("start: %w", ctx.Err())
	case <-c.done:
		return guest.Status{}, fmt.Errorf("start: %w", ErrClosed)
	}
	if entry.refusal != nil {
		return guest.Status{}, fmt.Errorf("start: %w", entry.refusal)
	}
	status := entry.status()
	status.Started = <-first
	return status, nil
}

// launch asks the guest to start the command and says whether it did just now.
// Without an answer the command stays undecided: it may run, and the next
// greeting tells.
func (c *Conn) launch(entry *command, cmd guest.Command) bool {
	answer, err := c.call(context.Background(), guest.Start, cmd)
	if refused, ok := errors.AsType[*guest.Error](err); ok {
		c.journals.forget(entry, refused)
	}
	return err == nil && answer.Status != nil && answer.Status.Started
}

// startedReply records that a command runs, before its output, which follows, is
// read.
func (c *Conn) startedReply(r *request, answer guest.Answer) {
	if answer.Error != nil || answer.Status == nil {
		return
	}
	entry, ok := c.journals.get(r.command)
	if !ok {
		return
	}
	c.mu.Lock()
	taken := c.numbers[answer.Number]
	if answer.Number != 0 && taken == nil {
		c.numbers[answer.Number] = entry
	}
	c.mu.Unlock()
	if taken != nil && taken != entry {
		return
	}
	if err := entry.started(*answer.Status); err != nil {
		c.log.Error("can't record a command", slog.Any("error", err))
		c.lost(err.Error())
		return
	}
	if answer.Number == 0 && answer.Status.Ended() {
		// It ran long ago, was recorded, and the record is gone from our disk.
		if err := entry.forgotten(); err != nil {
			c.log.Error("can't record a command's end", slog.Any("error", err))
		}
	}
}
