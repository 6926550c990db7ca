package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	inlineOutput = 1 << 20          // bytes of output in the answer to an exec
	inlineWait   = 20 * time.Second // that an exec waits for its command
)

func (s *Server) describeCommands() {
	register(s, operation.Operation{
		ID: "exec", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/exec", Access: operation.Users, Max: 4 << 20,
		Summary: "Start a command, once for its id; with wait, a short command's output and end are in the answer",
	}, s.exec)
	register(s, operation.Operation{
		ID: "get-command", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/exec/{command}", Access: operation.Users,
		Summary: "Where a command stands",
	}, s.getCommand)
	register(s, operation.Operation{
		ID: "read-command", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/exec/{command}/output", Access: operation.Users, Kind: api.FrameType,
		Summary: "A command's output from an offset on, as frames: one byte of descriptor, eight of offset, four of length, the data; descriptor 0 is the status and the end",
	}, s.readCommand)
	register(s, operation.Operation{
		ID: "kill-command", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}/exec/{command}", Access: operation.Users,
		Summary: "End a command's whole process tree",
	}, s.killCommand)
}

type execInput struct {
	ID   string `path:"id" maxLength:"64"`
	Body api.ExecRequest
}

type execOutput struct{ Body api.ExecResult }

func (s *Server) exec(ctx context.Context, in *execInput) (*execOutput, error) {
	if err := s.own(ctx, in.ID); err != nil {
		return nil, err
	}
	cmd, err := commandOf(in.Body)
	if err != nil {
		return nil, err
	}
	out := &execOutput{api.ExecResult{Output: []api.Chunk{}}}
	if in.Body.Wait {
		return out, s.collect(ctx, in.ID, cmd, &out.Body)
	}
	st, err := s.need.Commands.Start(ctx, in.ID, cmd)
	out.Body.Command = translate.Command(st)
	return out, err
}

// commandOf checks what JSON Schema can't say.
func commandOf(r api.ExecRequest) (sandbox.Command, error) {
	cmd := sandbox.Command{ID: r.ID, Argv: r.Argv, Dir: r.Dir, Timeout: translate.Seconds(r.TimeoutSeconds)}
	if cmd.ID == "" {
		cmd.ID = "c-" + randomName(16)
	}
	if r.Argv[0] == "" {
		return cmd, problem.Invalid("body.argv[0]", "must name a program")
	}
	for i, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return cmd, problem.Invalid(fmt.Sprintf("body.argv[%d]", i), "must not hold a NUL character")
		}
	}
	if r.Dir != "" && (!path.IsAbs(r.Dir) || strings.ContainsRune(r.Dir, 0)) {
		return cmd, problem.Invalid("body.dir", "must be an absolute path")
	}
	for k, v := range r.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return cmd, problem.Invalid("body.env", "holds a name or a value that no environment can hold: "+problem.Quote(k))
		}
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	slices.Sort(cmd.Env) // so that a repeated request is the same command
	return cmd, consoleOf(r, &cmd)
}

// collect starts a command, waits for its end and puts its output into the
// answer. What does not fit or takes longer is left to read-command.
func (s *Server) collect(ctx context.Context, id string, cmd sandbox.Command, out *api.ExecResult) error {
	wait, cancel := context.WithTimeout(ctx, s.inlineWait)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	err := s.gather(wait, id, cmd, out)
	if wait.Err() == nil || ctx.Err() != nil || out.Done {
		return err
	}
	// The waiting time is used up, and the command may have been silent so far:
	// asked again by its id, it is there for certain and its status known.
	st, err := s.need.Commands.Start(ctx, id, cmd)
	if err != nil {
		return err
	}
	st.Started = st.Started || out.Command.Started
	out.Command = translate.Command(st)
	return nil
}

// gather copies a command's output into the answer until its end or the bound.
func (s *Server) gather(ctx context.Context, id string, cmd sandbox.Command, out *api.ExecResult) error {
	stream, err := s.need.Commands.Exec(ctx, id, cmd, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	var held sandbox.Chunk // neighbours of one stream are put together
	flush := func() {
		if len(held.Data) > 0 {
			out.Output = append(out.Output, api.NewChunk(held.Fd, held.Offset, held.Data))
			held.Data = nil
		}
	}
	defer flush()
	for out.Next < inlineOutput {
		chunk, err := stream.Next()
		out.Command = translate.Command(stream.Status())
		if errors.Is(err, io.EOF) {
			out.Done = true
			return nil
		}
		if err != nil {
			return err
		}
		data := chunk.Data[:min(int64(len(chunk.Data)), inlineOutput-out.Next)]
		if chunk.Fd != held.Fd {
			flush()
		}
		if len(held.Data) == 0 {
			held.Fd, held.Offset = chunk.Fd, chunk.Offset
		}
		held.Data = append(held.Data, data...)
		out.Next = chunk.Offset + int64(len(data))
	}
	return nil
}

type commandPath struct {
	ID      string `path:"id" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
}

// command refuses a command that can't be the principal's.
func (s *Server) command(ctx context.Context, in *commandPath) error {
	if err := s.own(ctx, in.ID); err != nil {
		return err
	}
	if !sandbox.ValidCommandID(in.Command) {
		return problem.NotFound("command", in.Command)
	}
	return nil
}

type commandOutput struct{ Body api.CommandStatus }

func (s *Server) getCommand(ctx context.Context, in *commandPath) (*commandOutput, error) {
	if err := s.command(ctx, in); err != nil {
		return nil, err
	}
	st, err := s.inspect(ctx, in.ID, in.Command)
	if err != nil {
		return nil, err
	}
	return &commandOutput{translate.Command(st)}, nil
}

func (s *Server) killCommand(ctx context.Context, in *commandPath) (*struct{}, error) {
	if err := s.command(ctx, in); err != nil {
		return nil, err
	}
	return nil, s.need.Commands.Kill(ctx, in.ID, in.Command)
}

type readCommandInput struct {
	ID      string `path:"id" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Offset  int64  `query:"offset" minimum:"0" doc:"Bytes of output to leave out."`
	Follow  bool   `query:"follow" doc:"Go on until the command has ended; otherwise until the output there is now."`
}

func (s *Server) readCommand(ctx context.Context, in *readCommandInput) (*raw, error) {
	if err := s.command(ctx, &commandPath{in.ID, in.Command}); err != nil {
		return nil, err
	}
	st, err := s.need.Commands.Status(ctx, in.ID, in.Command)
	if err != nil {
		return nil, err
	}
	if in.Offset > st.Output {
		return nil, problem.Invalid("query.offset", fmt.Sprintf("is beyond the output's end at %d", st.Output))
	}
	return s.stream(api.FrameType, nil, func(ctx context.Context, w *paced.Answer) error {
		if !in.Follow && in.Offset == st.Output {
			return sendStatus(w, st)
		}
		stream, err := s.need.Commands.Attach(ctx, in.ID, in.Command, in.Offset)
		if err != nil {
			return sendProblem(ctx, w, err)
		}
		defer stream.Close()
		until := int64(-1)
		if !in.Follow {
			until = st.Output
		}
		return sendFrames(ctx, w, stream, until)
	}), nil
}

// sendFrames copies the stream to the client, with a sign of life while it is
// silent, until its end or until the output reaches until (-1: the end).
func sendFrames(ctx context.Context, w *paced.Answer, stream sandbox.Stream, until int64) error {
	ctx, cancel := context.WithCancel(ctx)
	frames, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- pump(ctx, stream, until, frames) }()
	defer func() {
		cancel()
		_ = stream.Close() // wakes Next
	}()
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	w.Flush() // the client learns that it is connected
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b := <-frames:
			if _, err := w.Write(b); err != nil {
				return err
			}
			w.Flush()
		case err := <-ended:
			if err != nil {
				return sendProblem(ctx, w, err)
			}
			return sendStatus(w, stream.Status())
		case <-alive.C:
			b, err := api.AppendFrame(nil, api.Frame{Fd: api.FrameHeartbeat})
			if err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
			w.Flush()
		}
	}
}

// pump encodes chunks; nil means the end that was wanted.
func pump(ctx context.Context, stream sandbox.Stream, until int64, out chan<- []byte) error {
	for {
		chunk, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if until >= 0 && chunk.Offset+int64(len(chunk.Data)) > until {
			chunk.Data = chunk.Data[:max(until-chunk.Offset, 0)]
		}
		for part := range slices.Chunk(chunk.Data, api.MaxFrame) {
			b, err := api.AppendFrame(nil, api.Frame{Fd: byte(chunk.Fd), Offset: chunk.Offset, Data: part})
			if err != nil {
				return fmt.Errorf("output at %d: %w", chunk.Offset, err)
			}
			chunk.Offset += int64(len(part))
			select {
			case out <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if until >= 0 && chunk.Offset >= until {
			return nil
		}
	}
}

func sendStatus(w *paced.Answer, st sandbox.Status) error {
	return sendJSON(w, api.FrameStatus, translate.Command(st))
}

// sendProblem ends a stream whose command can't be read any more. A client that
// is gone, or a server that stops, gets a broken connection instead.
func sendProblem(ctx context.Context, w *paced.Answer, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := problem.Of(err)
	if p.Code == string(task.InfraInternal) {
		return err
	}
	p.Request = requestID(ctx)
	return sendJSON(w, api.FrameProblem, p)
}

func sendJSON(w *paced.Answer, fd byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("last frame: %w", err)
	}
	b, err := api.AppendFrame(nil, api.Frame{Fd: fd, Data: data})
	if err != nil {
		return fmt.Errorf("last frame: %w", err)
	}
	_, err = w.Write(b)
	w.Flush()
	return err
}
