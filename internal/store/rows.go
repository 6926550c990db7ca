package store

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// taskRow is a row of tasks.
type taskRow struct {
	bun.BaseModel `bun:"table:tasks"`

	ID              string `bun:"id,pk"`
	Number          int64  `bun:"number"`
	State           string `bun:"state"`
	Reason          string `bun:"reason"`
	Text            string `bun:"text"`
	RequestedBy     string `bun:"requested_by"`
	IdempotencyKey  string `bun:"idempotency_key,nullzero"`
	RequestDigest   string `bun:"request_digest"`
	Repo            string `bun:"repo"`
	Ref             string `bun:"ref"`
	Commit          string `bun:"commit_id"`
	Worker          string `bun:"worker"`
	PolicyDigest    string `bun:"policy_digest"`
	Attempt         int64  `bun:"attempt"`
	Spec            string `bun:"spec"`
	Sandboxes       int64  `bun:"sandboxes"`
	EgressAllowed   int64  `bun:"egress_allowed"`
	EgressDenied    int64  `bun:"egress_denied"`
	BytesIn         int64  `bun:"bytes_in"`
	BytesOut        int64  `bun:"bytes_out"`
	ModelRequests   int64  `bun:"model_requests"`
	ModelInput      int64  `bun:"model_input"`
	ModelOutput     int64  `bun:"model_output"`
	ModelCached     int64  `bun:"model_cached"`
	CreatedAt       int64  `bun:"created_at"`
	StartedAt       *int64 `bun:"started_at"`
	EndedAt         *int64 `bun:"ended_at"`
	CancelRequested *int64 `bun:"cancel_requested_at"`
	LastEvent       int64  `bun:"last_event"`
	Layers          string `bun:"layers"`

	Bundle *string `bun:"bundle"` // nil: the spec says it; empty: none, or let go of
}

// task gives the row without lists. now ends the wall time of a task that runs.
func (r taskRow) task(now time.Time) (task.Task, error) {
	t := task.Task{
		ID: r.ID, State: task.State(r.State), Reason: task.Reason(r.Reason), Text: r.Text, RequestedBy: r.RequestedBy,
		Repo: r.Repo, Ref: r.Ref, Commit: r.Commit, Worker: r.Worker, PolicyDigest: task.Digest(r.PolicyDigest),
		IdempotencyKey: r.IdempotencyKey, Attempt: int(r.Attempt),
		Stages: []task.Stage{}, Outputs: []task.Output{}, Actions: []task.Action{},
		Usage: task.Usage{
			Sandboxes: int(r.Sandboxes), EgressAllowed: int(r.EgressAllowed), EgressDenied: int(r.EgressDenied),
			BytesIn: r.BytesIn, BytesOut: r.BytesOut,
			Model: task.ModelUsage{Requests: r.ModelRequests, Input: r.ModelInput, Output: r.ModelOutput, Cached: r.ModelCached},
		},
		CreatedAt: table.Moment(r.CreatedAt), EndedAt: table.Optional(r.EndedAt),
	}
	if r.StartedAt != nil {
		end := now
		if t.EndedAt != nil {
			end = *t.EndedAt
		}
		t.Usage.WallSeconds = max(0, end.Sub(table.Moment(*r.StartedAt)).Seconds())
	}
	if err := json.Unmarshal([]byte(r.Spec), &t.Spec); err != nil {
		return task.Task{}, fmt.Errorf("spec of task %q: %w", r.ID, err)
	}
	if r.Layers != "" {
		if err := json.Unmarshal([]byte(r.Layers), &t.Layers); err != nil {
			return task.Task{}, fmt.Errorf("layers of task %q: %w", r.ID, err)
		}
	}
	return t, nil
}

// stageRow is a row of stages: the runs of one stage in one attempt, of which
// the latest shows.
type stageRow struct {
	bun.BaseModel `bun:"table:stages"`

	Task      string `bun:"task,pk"`
	Attempt   int64  `bun:"attempt,pk"`
	Name      string `bun:"name,pk"`
	State     string `bun:"state"`
	Reason    string `bun:"reason"`
	Text      string `bun:"text"`
	Starts    int64  `bun:"starts"`
	Sandbox   string `bun:"sandbox"`
	ExitCode  *int64 `bun:"exit_code"`
	StartedAt *int64 `bun:"started_at"`
	EndedAt   *int64 `bun:"ended_at"`
}

func (r stageRow) stage() task.Stage {
	s := task.Stage{
		Name: task.StageName(r.Name), State: task.StageState(r.State), Reason: task.Reason(r.Reason), Text: r.Text,
		Attempts: int(r.Starts), Sandbox: r.Sandbox, StartedAt: table.Optional(r.StartedAt), EndedAt: table.Optional(r.EndedAt),
	}
	if r.ExitCode != nil {
		code := int(*r.ExitCode)
		s.ExitCode = &code
	}
	return s
}

type outputRow struct {
	bun.BaseModel `bun:"table:outputs"`

	Task   string `bun:"task,pk"`
	Name   string `bun:"name,pk"`
	Number int64  `bun:"number"`
	Kind   string `bun:"kind"`
	Digest string `bun:"digest"`
	Size   int64  `bun:"size"`
	Flags  string `bun:"flags"`

	Path    string `bun:"path"` // base64
	Removed *int64 `bun:"removed_at"`

	Findings string `bun:"findings"`
	Verdict  string `bun:"verdict"`
}

func (r outputRow) output() (task.Output, error) {
	o := task.Output{Name: r.Name, Kind: r.Kind, Digest: task.Digest(r.Digest), Size: r.Size, Flags: []string{}, Removed: table.Optional(r.Removed)}
	path, err := base64.StdEncoding.DecodeString(r.Path)
	if err != nil {
		return o, fmt.Errorf("path of output %q: %w", r.Name, err)
	}
	if len(path) > 0 {
		o.Path = path
	}
	o.Verdict = task.FlagVerdict(r.Verdict)
	if err := errors.Join(json.Unmarshal([]byte(r.Flags), &o.Flags), json.Unmarshal([]byte(r.Findings), &o.Findings)); err != nil {
		return o, fmt.Errorf("flags of output %q: %w", r.Name, err)
	}
	return o, nil
}

type eventRow struct {
	bun.BaseModel `bun:"table:events"`

	Task string `bun:"task,pk"`
	Seq  int64  `bun:"seq,pk"`
	Time int64  `bun:"time"`
	Type string `bun:"type"`
	Data string `bun:"data"`
}

type sandboxRow struct {
	bun.BaseModel `bun:"table:sandboxes"`

	ID     string `bun:"id,pk"`
	Task   string `bun:"task"`
	Number int64  `bun:"number"`
	Spec   string `bun:"spec"`
}

type egressRow struct {
	bun.BaseModel `bun:"table:egress"`

	Sandbox string `bun:"sandbox,pk"`
	Seq     int64  `bun:"seq,pk"`
	Task    string `bun:"task"`
	Number  int64  `bun:"number"`
	Record  string `bun:"record"`
}

type ownerRow struct {
	bun.BaseModel `bun:"table:owners"`

	Sandbox string `bun:"sandbox,pk"`
	Owner   string `bun:"owner"`
	Digest  string `bun:"digest"`
}

func nanos(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	ns := t.UnixNano()
	return &ns
}

// jsonText encodes v for a column. Our own types always encode.
func jsonText(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode a row: %w", err)
	}
	return string(raw), nil
}
