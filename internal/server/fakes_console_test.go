package server

import (
	"context"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// console is what the machines' commands were given.
type console struct {
	input   []byte
	closed  bool
	size    sandbox.Size
	signals []sandbox.Signal
}

func (f *machines) held(id, command string) (*journal, *console, error) {
	j, err := f.journal(id, command)
	if err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.consoles == nil {
		f.consoles = map[*journal]*console{}
	}
	if f.consoles[j] == nil {
		f.consoles[j] = &console{}
	}
	return j, f.consoles[j], nil
}

func (f *machines) Inspect(_ context.Context, id, command string) ([]sandbox.Status, error) {
	var ids []string
	f.mu.Lock()
	for key := range f.cmds {
		if name, ok := strings.CutPrefix(key, id+"/"); ok && (command == "" || command == name) {
			ids = append(ids, name)
		}
	}
	f.mu.Unlock()
	if command != "" && len(ids) == 0 {
		return nil, missing("command")
	}
	slices.Sort(ids)
	var out []sandbox.Status
	for _, name := range ids {
		j, c, err := f.held(id, name)
		if err != nil {
			return nil, err
		}
		st := j.status()
		st.Input, st.InputOpen = int64(len(c.input)), !c.closed
		st.Processes, st.Children = []sandbox.Process{{PID: 7, State: "S", Command: "sleep 9"}}, []int{7}
		out = append(out, st)
	}
	return out, nil
}

// Input takes at most four bytes at a time.
func (f *machines) Input(_ context.Context, id, command string, in sandbox.Input) (sandbox.Taken, error) {
	_, c, err := f.held(id, command)
	if err != nil {
		return sandbox.Taken{}, err
	}
	have := int64(len(c.input))
	if in.Offset > have {
		return sandbox.Taken{}, task.Fail(task.InputInvalid, "a gap", nil)
	}
	if c.closed {
		return sandbox.Taken{Offset: have}, nil
	}
	data := in.Data[min(have-in.Offset, int64(len(in.Data))):]
	data = data[:min(len(data), 4)]
	c.input = append(c.input, data...)
	c.closed = c.closed || in.Close && int64(len(c.input)) == in.Offset+int64(len(in.Data))
	return sandbox.Taken{Offset: int64(len(c.input)), Open: !c.closed}, nil
}

func (f *machines) Resize(_ context.Context, id, command string, size sandbox.Size) error {
	_, c, err := f.held(id, command)
	if err == nil {
		c.size = size
	}
	return err
}

func (f *machines) SignalPart(_ context.Context, id, command string, s sandbox.Signal) error {
	_, c, err := f.held(id, command)
	if err == nil {
		c.signals = append(c.signals, s)
	}
	return err
}
