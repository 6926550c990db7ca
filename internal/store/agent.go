package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxAgentText bounds the text and the input of one agent event, in bytes.
const maxAgentText = 16 << 10

// AddAgentEvent tells what an agent said or did, once per task and key.
func (s *Store) AddAgentEvent(ctx context.Context, id, key string, e task.AgentEvent) error {
	if e.Time.IsZero() {
		e.Time = s.now()
	}
	var cut [2]bool
	e.Text, cut[0] = shorten(e.Text)
	e.Input, cut[1] = shorten(e.Input)
	e.Cut = e.Cut || cut[0] || cut[1]
	err := s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		res, err := tx.NewRaw("INSERT INTO agent_events (task, key) VALUES (?, ?) ON CONFLICT (task, key) DO NOTHING", id, key).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		if e.Type == "usage" && e.Usage != nil {
			_, err := tx.NewRaw("UPDATE tasks SET model_requests = model_requests + ?, model_input = model_input + ?, model_output = model_output + ?, model_cached = model_cached + ? WHERE id = ?",
				max(e.Usage.Requests, 0), max(e.Usage.Input, 0), max(e.Usage.Output, 0), max(e.Usage.Cached, 0), id).Exec(ctx)
			if err != nil {
				return err
			}
		}
		return s.emit(ctx, tx, id, "agent", e)
	})
	return s.failure("add agent event", err)
}

// shorten keeps the beginning of s, and only characters of UTF-8.
func shorten(s string) (string, bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxAgentText {
		return s, false
	}
	end := maxAgentText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], true
}

// turnRow is a row of turns.
type turnRow struct {
	bun.BaseModel `bun:"table:turns"`

	Task     string `bun:"task,pk"`
	Attempt  int64  `bun:"attempt,pk"`
	Turn     int64  `bun:"turn,pk"`
	State    string `bun:"state"`
	Request  string `bun:"request"`
	Requests int64  `bun:"requests"`
	Response string `bun:"response"`
	Input    int64  `bun:"input"`
	Output   int64  `bun:"output"`
	Cached   int64  `bun:"cached"`
}

// callRow is a row of calls.
type callRow struct {
	bun.BaseModel `bun:"table:calls"`

	Task    string `bun:"task,pk"`
	Attempt int64  `bun:"attempt,pk"`
	Turn    int64  `bun:"turn,pk"`
	Call    int64  `bun:"call,pk"`
	Tool    string `bun:"tool"`
	Input   string `bun:"input"`
	Command string `bun:"command"`
	State   string `bun:"state"`
	Before  string `bun:"before"`
	After   string `bun:"after"`
	Result  string `bun:"result"`
	Failed  bool   `bun:"failed"`
}

// Turns returns the attempt's turns in order, each with its calls in order.
func (s *Store) Turns(ctx context.Context, id string, attempt int) ([]stage.Turn, error) {
	var rows []turnRow
	if err := s.read.NewSelect().Model(&rows).Where("task = ? AND attempt = ?", id, attempt).OrderExpr("turn").Scan(ctx); err != nil {
		return nil, s.failure("read turns", err)
	}
	var calls []callRow
	if err := s.read.NewSelect().Model(&calls).Where("task = ? AND attempt = ?", id, attempt).OrderExpr("turn, call").Scan(ctx); err != nil {
		return nil, s.failure("read calls", err)
	}
	turns := make([]stage.Turn, 0, len(rows))
	for _, r := range rows {
		t := stage.Turn{
			Number: int(r.Turn), State: stage.TurnState(r.State), Request: task.Digest(r.Request), Requests: r.Requests,
			Usage: task.ModelUsage{Input: r.Input, Output: r.Output, Cached: r.Cached},
		}
		if r.Response != "" {
			t.Response = json.RawMessage(r.Response)
		}
		for _, c := range calls {
			if c.Turn == r.Turn {
				t.Calls = append(t.Calls, c.call())
			}
		}
		turns = append(turns, t)
	}
	return turns, nil
}

func (c callRow) call() stage.Call {
	return stage.Call{
		Number: int(c.Call), Tool: c.Tool, Input: c.Input, Command: c.Command, State: stage.TurnState(c.State),
		Before: task.Digest(c.Before), After: task.Digest(c.After), Result: c.Result, Failed: c.Failed,
	}
}

// SetTurn records where a turn stands. One that is answered stays as it is.
func (s *Store) SetTurn(ctx context.Context, id string, attempt int, t stage.Turn) error {
	if attempt < 1 || t.Number < 1 || t.State != stage.TurnAsking && t.State != stage.TurnAnswered {
		return task.Fail(task.InfraInternal, "not a turn of an attempt", fmt.Errorf("turn %d, attempt %d, state %q", t.Number, attempt, t.State))
	}
	row := turnRow{
		Task: id, Attempt: int64(attempt), Turn: int64(t.Number), State: string(t.State), Request: string(t.Request), Requests: t.Requests,
		Response: string(t.Response), Input: t.Usage.Input, Output: t.Usage.Output, Cached: t.Usage.Cached,
	}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.NewRaw(`INSERT INTO turns (task, attempt, turn, state, request, requests, response, input, output, cached)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (task, attempt, turn) DO UPDATE SET state = excluded.state, request = excluded.request, requests = excluded.requests,
			response = excluded.response, input = excluded.input, output = excluded.output, cached = excluded.cached
			WHERE turns.state <> ?`,
			row.Task, row.Attempt, row.Turn, row.State, row.Request, row.Requests, row.Response, row.Input, row.Output, row.Cached,
			string(stage.TurnAnswered)).Exec(ctx)
		return err
	})
	return s.failure("set turn", err)
}

// SetCall records where a call stands. One that is done stays as it is.
func (s *Store) SetCall(ctx context.Context, id string, attempt, turn int, c stage.Call) error {
	if attempt < 1 || turn < 1 || c.Number < 1 || c.State == "" {
		return task.Fail(task.InfraInternal, "not a call of a turn", fmt.Errorf("call %d, turn %d, attempt %d, state %q", c.Number, turn, attempt, c.State))
	}
	failed := 0
	if c.Failed {
		failed = 1
	}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.NewRaw(`INSERT INTO calls (task, attempt, turn, call, tool, input, command, state, before, after, result, failed)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (task, attempt, turn, call) DO UPDATE SET tool = excluded.tool, input = excluded.input, command = excluded.command,
			state = excluded.state, before = excluded.before, after = excluded.after, result = excluded.result, failed = excluded.failed
			WHERE calls.state <> ?`,
			id, attempt, turn, c.Number, c.Tool, strings.ToValidUTF8(c.Input, "\uFFFD"), c.Command, string(c.State), string(c.Before), string(c.After),
			strings.ToValidUTF8(c.Result, "\uFFFD"), failed, string(stage.CallDone)).Exec(ctx)
		return err
	})
	return s.failure("set call", err)
}
