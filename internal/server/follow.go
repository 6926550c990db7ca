package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/traffic"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	heartbeat  = 15 * time.Second       // between signs of life on a silent stream
	eventBatch = 256                    // events read from the store at once
	eventPoll  = 2 * time.Second        // looks at the store even if nobody said there is more
	logPoll    = 150 * time.Millisecond // looks at a log that grows
)

type watchInput struct {
	ID    string `path:"id" maxLength:"64"`
	Last  string `header:"Last-Event-ID" maxLength:"20" doc:"Only events after this one; wins over after."`
	After int64  `query:"after" minimum:"0" doc:"Only events numbered higher."`
}

func (s *Server) watchTask(ctx context.Context, in *watchInput) (*raw, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	after := in.After
	if in.Last != "" {
		if after, err = strconv.ParseInt(in.Last, 10, 64); err != nil || after < 0 {
			return nil, problem.Invalid("header.Last-Event-ID", "must be the number of an event")
		}
	}
	return s.stream("text/event-stream", map[string]string{"X-Accel-Buffering": "no"}, func(ctx context.Context, w *paced.Answer) error {
		return s.sendEvents(ctx, w, t.ID, after)
	}), nil
}

// sendEvents writes events until the task has ended and all were written.
func (s *Server) sendEvents(ctx context.Context, w *paced.Answer, id string, after int64) error {
	more, stop := s.need.Events.Watch(id)
	defer stop()
	alive, poll := time.NewTicker(heartbeat), time.NewTicker(eventPoll)
	defer alive.Stop()
	defer poll.Stop()
	if _, err := io.WriteString(w, ": events of "+id+"\n\n"); err != nil {
		return err
	}
	var running traffic.Running
	if after > 0 {
		// What ran then may have begun before where the client goes on.
		err := s.events(ctx, id, 0, func(e task.Event) {
			if e.Seq <= after {
				running.See(e)
			}
		})
		if err != nil {
			return err
		}
	}
	for {
		// The state is read before the events: what was written before the task
		// ended is then among them.
		t, err := s.need.Tasks.Task(ctx, id)
		if err != nil {
			return err
		}
		n, err := s.sendBatches(ctx, w, id, &after, &running)
		if err != nil {
			return err
		}
		if n == 0 && t.State.Ended() {
			_, err := io.WriteString(w, "event: end\ndata: {}\n\n")
			w.Flush()
			return err
		}
		w.Flush()
		if n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-more:
		case <-poll.C:
		case <-alive.C:
			if _, err := io.WriteString(w, ": alive\n\n"); err != nil {
				return err
			}
		}
	}
}

// sendBatches writes the events that are there and returns how many.
func (s *Server) sendBatches(ctx context.Context, w *paced.Answer, id string, after *int64, running *traffic.Running) (int, error) {
	total := 0
	for {
		events, err := s.need.Events.Events(ctx, id, *after, eventBatch)
		if err != nil {
			return total, err
		}
		var b bytes.Buffer
		for _, e := range events {
			running.See(e)
			if r, ok := e.Data.(task.EgressRecord); ok {
				told := translate.Egress(r)
				told.Commands = running.At(r.Sandbox, r.Stage, r.Time)
				e.Data = told
			}
			ev, err := translate.Event(e)
			if err != nil {
				return total, err
			}
			data, err := json.Marshal(ev)
			if err != nil {
				return total, fmt.Errorf("event %d of %s: %w", e.Seq, id, err)
			}
			fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", ev.Seq, word(ev.Type), data)
			*after = ev.Seq
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return total, err
		}
		total += len(events)
		if len(events) < eventBatch {
			return total, nil
		}
	}
}

// word keeps an event's type on its line.
func word(s string) string { return strings.Map(oneLine, s) }

func oneLine(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

type logInput struct {
	ID      string `path:"id" maxLength:"64"`
	Stage   string `query:"stage" maxLength:"32" default:"agent"`
	Attempt int    `query:"attempt" minimum:"0" maximum:"1000000" doc:"0: the latest."`
	Offset  int64  `query:"offset" minimum:"0" doc:"Bytes to leave out."`
	Follow  bool   `query:"follow" doc:"Go on until the stage has ended."`
}

func (s *Server) readLog(ctx context.Context, in *logInput) (*raw, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	name := task.StageName(in.Stage)
	if !slices.Contains(task.StageNames(), name) {
		return nil, problem.Invalid("query.stage", "is not one of the nine stages")
	}
	attempt := in.Attempt
	if attempt == 0 {
		attempt = max(t.Attempt, 1)
	}
	// Opened once before the answer begins, so that a failure can be told.
	first, size, err := s.need.Events.OpenLog(ctx, t.ID, attempt, name, in.Offset)
	if err != nil {
		return nil, err
	}
	if in.Offset > size {
		_ = first.Close()
		return nil, problem.Invalid("query.offset", fmt.Sprintf("is beyond the log's end at %d", size))
	}
	header := map[string]string{"Cofferdam-Attempt": strconv.Itoa(attempt)}
	return s.stream("application/octet-stream", header, func(ctx context.Context, w *paced.Answer) error {
		w.Flush()
		return s.sendLog(ctx, w, first, logPlace{t.ID, attempt, name, in.Offset}, in.Follow)
	}), nil
}

// logPlace is a position in a stage's log.
type logPlace struct {
	task    string
	attempt int
	stage   task.StageName
	offset  int64
}

// sendLog copies the log until its end or, when following, the stage's.
func (s *Server) sendLog(ctx context.Context, w *paced.Answer, r io.ReadCloser, at logPlace, follow bool) error {
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for {
		// The stage is looked at before the log is read: what it wrote before it
		// ended is then among what is read.
		var done bool
		if follow {
			t, err := s.need.Tasks.Task(ctx, at.task)
			if err != nil {
				return err
			}
			done = logDone(t, at)
		}
		if r == nil {
			var err error
			if r, _, err = s.need.Events.OpenLog(ctx, at.task, at.attempt, at.stage, at.offset); err != nil {
				return err
			}
		}
		n, err := io.Copy(w, r)
		_ = r.Close()
		r = nil
		at.offset += n
		if err != nil {
			return err
		}
		if n > 0 {
			w.Flush()
		}
		if done || !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// logDone says whether nothing more will be written to the log.
func logDone(t task.Task, at logPlace) bool {
	if t.State.Ended() || t.Attempt > at.attempt {
		return true
	}
	for _, st := range t.Stages {
		if st.Name == at.stage {
			return st.State != task.StagePending && st.State != task.StageRunning && st.State != ""
		}
	}
	return false
}

// digestHeader is the digest in the form of RFC 3230.
func digestHeader(d task.Digest) string {
	raw, err := hex.DecodeString(strings.TrimPrefix(string(d), "sha256:"))
	if err != nil {
		return ""
	}
	return "sha-256=" + base64.StdEncoding.EncodeToString(raw)
}
