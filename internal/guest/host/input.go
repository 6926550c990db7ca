package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Input gives a command bytes of its standard input, of which offset stand before
// data. What was given before is not given again. It returns when the guest has
// taken all of data, when no more is taken, or when ctx ends; the state says how
// far it came, and that is no error. With close nothing follows data.
func (c *Conn) Input(ctx context.Context, id string, offset int64, data []byte, close bool) (guest.InputState, error) {
	cmd, err := c.journals.find(id)
	if err != nil {
		return guest.InputState{}, err
	}
	state := guest.InputState{Taken: offset, Open: true}
	for {
		if s := cmd.status(); s.Ended() {
			return guest.InputState{Taken: max(s.Input, 0)}, nil
		}
		piece := data[:min(len(data), guest.MaxInput)]
		r := guest.InputRequest{ID: id, Offset: offset, Data: piece, Close: close && len(piece) == len(data)}
		answer, err := c.request(ctx, guest.Input, guest.AppendInput(nil, r), "")
		if ctx.Err() != nil {
			return state, nil // Not an error: the program reads slowly, or not at all.
		}
		if err != nil {
			return state, fmt.Errorf("input: %w", err)
		}
		if answer.Input == nil {
			return state, errors.New("input: the guest's answer holds no state")
		}
		state = *answer.Input
		if !state.Open {
			return guest.InputState{Taken: max(state.Taken, offset)}, nil
		}
		if state.Taken < offset {
			return state, guest.Errorf(guest.ReasonInternal, "the guest says that it took %d bytes where it had %d", state.Taken, offset)
		}
		// More than this call gave was given by another worker, or another client.
		n := min(state.Taken-offset, int64(len(data)))
		offset, data = offset+n, data[n:]
		if len(data) == 0 && (!close || state.Taken > offset) {
			return state, nil
		}
	}
}

// Resize gives a command's terminal another size. Its programs are told, also
// when it had that size already.
func (c *Conn) Resize(ctx context.Context, id string, size guest.Size) error {
	if _, err := c.journals.find(id); err != nil {
		return err
	}
	_, err := c.call(ctx, guest.Resize, guest.ResizeRequest{ID: id, Size: size})
	return wrap("resize", err)
}

// Inspected is a command's status with what is true this very moment.
type Inspected struct {
	guest.Status
	Processes []guest.Process
}

// Inspect tells how a command stands this very moment, with the living processes
// of its tree; with an empty id it tells of every command.
func (c *Conn) Inspect(ctx context.Context, id string) ([]Inspected, error) {
	statuses := c.journals.Statuses()
	if id != "" {
		status, err := c.journals.Status(id)
		if err != nil {
			return nil, err
		}
		statuses = []guest.Status{status}
	}
	answer, err := c.call(ctx, guest.Inspect, guest.InspectRequest{ID: id})
	if refused, ok := errors.AsType[*guest.Error](err); ok && refused.Reason == guest.ReasonNotFound {
		err = nil // The guest forgot it: it ended long ago, and nothing of it lives.
	}
	if err != nil {
		return nil, wrap("inspect", err)
	}
	found := map[string]guest.Inspection{}
	for _, i := range answer.Inspections {
		found[i.ID] = i
	}
	out := make([]Inspected, 0, len(statuses))
	for _, s := range statuses {
		out = append(out, inspected(s, found[s.ID]))
	}
	return out, nil
}

// inspected joins what is on disk with what the guest says, which may be anything.
func inspected(s guest.Status, i guest.Inspection) Inspected {
	out := Inspected{Status: s}
	out.Children = nil
	for _, p := range i.Processes[:min(len(i.Processes), maxChildren)] {
		if p.PID <= 0 {
			continue
		}
		if len(p.State) != 1 {
			p.State = "?"
		}
		p.State, p.Command, p.Parent = cleanText(p.State), cleanText(p.Command), max(p.Parent, 0)
		out.Processes = append(out.Processes, p)
		if s.Ended() || p.PID != s.PID {
			out.Children = append(out.Children, p.PID)
		}
	}
	if !s.Ended() {
		out.Input, out.InputOpen = max(i.Input, 0), i.InputOpen
	}
	return out
}
