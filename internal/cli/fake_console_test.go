package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/cofferdam/cofferdam/api"
)

// fakeCommand is a command that runs once its input is closed.
type fakeCommand struct {
	req    api.ExecRequest
	input  []byte
	done   chan struct{}
	status api.CommandStatus
	out    []byte
	errs   []byte
	size   api.TerminalSize
}

func (s *site) awaitInput(w http.ResponseWriter, _ api.Sandbox, req api.ExecRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands == nil {
		s.commands = map[string]*fakeCommand{}
	}
	c, known := s.commands[req.ID]
	if !known {
		c = &fakeCommand{req: req, done: make(chan struct{})}
		c.status = api.CommandStatus{ID: req.ID, Phase: api.CommandRunning, InputOpen: true, Terminal: req.Terminal != nil}
		if req.Terminal != nil {
			c.size = *req.Terminal
		}
		s.commands[req.ID] = c
	}
	st := c.status
	st.Started = !known
	answer(w, 200, api.ExecResult{Command: st, Output: []api.Chunk{}})
}

func (s *site) fakeCommand(r *http.Request) *fakeCommand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands[r.PathValue("cmd")]
}

func (s *site) writeInput(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
	c := s.fakeCommand(r)
	if c == nil {
		refuse(w, 404, "input.not_found", "no command")
		return
	}
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	data, err := io.ReadAll(r.Body)
	if err != nil || offset > len(c.input) {
		refuse(w, 400, "input.invalid", "a gap")
		return
	}
	c.input = append(c.input[:offset], data...)
	s.mu.Lock()
	c.status.Input = int64(len(c.input))
	s.mu.Unlock()
	closing := r.URL.Query().Get("close") == "true"
	if closing {
		if c.req.Terminal != nil { // A terminal tells its size, and gives back what is typed.
			c.out = append([]byte(strconv.Itoa(int(c.size.Rows))+"x"+strconv.Itoa(int(c.size.Cols))+" "), c.input...)
			c.status = api.CommandStatus{ID: c.req.ID, Phase: api.CommandExited, Terminal: true, Input: int64(len(c.input))}
		} else {
			c.status, c.out, c.errs = s.runNow(b, c.req, c.input)
			c.status.Input = int64(len(c.input))
			if c.req.Env["CUT"] != "" {
				c.status.Cut, c.status.Reason, c.status.ExitCode, c.status.Signal = 1234, "limit.output", -1, 9
			}
		}
		close(c.done)
	}
	answer(w, 200, api.InputResult{Taken: int64(len(c.input)), Open: !closing})
}

// fed says whether the request is about a command with input.
func (s *site) fed(r *http.Request) bool {
	c := s.fakeCommand(r)
	if c == nil {
		return false
	}
	select {
	case <-c.done:
	case <-r.Context().Done():
	}
	return true
}

func (s *site) fedOutput(w http.ResponseWriter, r *http.Request) {
	c := s.fakeCommand(r)
	frames, _ := api.AppendFrame(nil, api.Frame{Fd: 2, Data: c.errs})
	frames, _ = api.AppendFrame(frames, api.Frame{Fd: 1, Offset: int64(len(c.errs)), Data: c.out})
	text, _ := json.Marshal(c.status)
	frames, _ = api.AppendFrame(frames, api.Frame{Fd: 0, Data: text})
	_, _ = w.Write(frames)
}

func (s *site) getCommand(w http.ResponseWriter, r *http.Request, _ api.Sandbox) {
	c := s.fakeCommand(r)
	if c == nil {
		refuse(w, 404, "input.not_found", "no command "+r.PathValue("cmd"))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, 200, c.status)
}

func (s *site) listCommands(w http.ResponseWriter, _ *http.Request, _ api.Sandbox) {
	answer(w, 200, api.CommandList{Commands: []api.CommandStatus{
		{ID: "build", Phase: api.CommandRunning, Output: 12, Processes: []api.Process{{PID: 7, State: "S", Command: "make\x1b[2J all"}}},
		{ID: "late", Phase: api.CommandExited, ExitCode: -1, Reason: "limit.time"},
		{ID: "done", Phase: api.CommandExited, ExitCode: 3},
	}})
}

func (s *site) resizeTerminal(w http.ResponseWriter, _ *http.Request, _ api.Sandbox) {
	w.WriteHeader(204)
}

func (s *site) signalCommand(w http.ResponseWriter, r *http.Request, _ api.Sandbox) {
	var req api.SignalRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Signal != "USR1" || !req.Group {
		refuse(w, 400, "input.invalid", "body.signal: is no signal")
		return
	}
	w.WriteHeader(204)
}
