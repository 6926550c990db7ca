// Package translate says in the words of the API what the rooms say in theirs. It
// decides nothing, and what it is given stays as it is.
package translate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Task translates a task; lists are never null.
func Task(t task.Task) api.Task {
	out := api.Task{
		ID: t.ID, State: string(t.State), Reason: string(t.Reason), Text: t.Text, RequestedBy: t.RequestedBy,
		Repo: t.Repo, Ref: t.Ref, Commit: t.Commit, Worker: t.Worker, PolicyDigest: string(t.PolicyDigest),
		Attempt: t.Attempt, Stages: []api.Stage{}, Outputs: []api.Output{}, Actions: []api.Action{}, Leases: []api.Lease{}, Approvals: []api.Approval{}, History: []api.StageRun{},
		Project: t.Spec.Project, Narrowed: t.Layers.Narrowed,
		Usage: Usage(t.Usage), CreatedAt: t.CreatedAt, EndedAt: t.EndedAt,
	}
	for _, st := range t.Stages {
		out.Stages = append(out.Stages, Stage(st))
	}
	for _, o := range t.Outputs {
		out.Outputs = append(out.Outputs, Output(o))
	}
	for _, a := range t.Actions {
		out.Actions = append(out.Actions, api.Action(a))
	}
	return out
}

// Usage translates what a task used.
func Usage(u task.Usage) api.Usage {
	return api.Usage{
		Sandboxes: u.Sandboxes, WallSeconds: u.WallSeconds, EgressAllowed: u.EgressAllowed, EgressDenied: u.EgressDenied,
		BytesIn: u.BytesIn, BytesOut: u.BytesOut, Model: api.ModelUsage(u.Model),
	}
}

// Stage translates a stage.
func Stage(st task.Stage) api.Stage {
	return api.Stage{
		Name: string(st.Name), State: string(st.State), Reason: string(st.Reason), Text: st.Text, Attempts: st.Attempts,
		Sandbox: st.Sandbox, ExitCode: st.ExitCode, StartedAt: st.StartedAt, EndedAt: st.EndedAt,
	}
}

// Output translates an output; a path that is no text goes in base64.
func Output(o task.Output) api.Output {
	flags := o.Flags
	if flags == nil {
		flags = []string{}
	}
	out := api.Output{Name: o.Name, Kind: o.Kind, Digest: string(o.Digest), Size: o.Size, Flags: flags, RemovedAt: o.Removed}
	out.Verdict = string(o.Verdict)
	for _, f := range o.Findings {
		out.Findings = append(out.Findings, api.Finding{ID: f.ID, Flag: string(f.Flag), Severity: f.Severity, Verdict: string(f.Verdict), Path: f.Path, Line: f.Line, Why: f.Why})
	}
	if utf8.Valid(o.Path) {
		out.Path = string(o.Path)
	} else {
		out.PathBase64 = base64.StdEncoding.EncodeToString(o.Path)
	}
	return out
}

// Egress translates a record of the gateway.
func Egress(r task.EgressRecord) api.EgressRecord {
	return api.EgressRecord{
		Seq: r.Seq, Conn: r.Conn, Done: r.Done, Time: r.Time, Sandbox: r.Sandbox, Task: r.Task, Stage: string(r.Stage),
		Name: r.Name, Address: r.Address, Port: r.Port, Protocol: r.Protocol, SNI: r.SNI, Host: r.HostName,
		Verdict: r.Verdict, Reason: string(r.Reason), Rule: r.Rule, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		Method: r.Method, Path: r.Path, Request: r.Request, Status: r.Status, Lease: r.Lease, Count: r.Count,
		Tokens: (*api.ModelTokens)(r.Tokens),
	}
}

// Event translates an event; its data is of a type of package task or, out
// of a store, JSON already.
func Event(e task.Event) (api.Event, error) {
	var data any
	switch v := e.Data.(type) {
	case api.EgressRecord: // translated already
		data = v
	case task.Stage:
		data = Stage(v)
	case task.Output:
		data = Output(v)
	case task.EgressRecord:
		data = Egress(v)
	case task.PolicyNote:
		data = api.PolicyNote{Layer: v.Layer, Narrowed: append([]string{}, v.Narrowed...)}
	case task.AgentEvent:
		data = AgentEvent(v)
	case task.Approval:
		data = Approval(v)
	case task.Task:
		data = Task(v)
	default:
		data = v
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return api.Event{}, fmt.Errorf("event %d of %s: %w", e.Seq, e.Task, err)
	}
	return api.Event{Seq: e.Seq, Task: e.Task, Time: e.Time, Type: e.Type, Data: raw}, nil
}

// Sandbox translates a sandbox of that owner on that worker.
func Sandbox(owner, worker string, i sandbox.Info) api.Sandbox {
	out := api.Sandbox{
		ID: i.ID, Owner: owner, Task: i.Task, Role: i.Role, Worker: worker, State: string(i.State), Reason: string(i.Reason),
		Network: i.Network, Sudo: i.Sudo, PID: i.PID, Kernel: i.Kernel, CreatedAt: i.CreatedAt, ExpiresAt: Moment(i.Expires),
		Limits: api.Limits{
			MilliCPU: i.Limits.MilliCPU, Memory: i.Limits.Memory, PIDs: i.Limits.PIDs, Disk: i.Limits.Disk,
			Output: i.Limits.Output, TimeSeconds: i.Limits.Time.Seconds(), Inodes: i.Limits.Inodes, Files: i.Limits.Files,
			Names: i.Limits.Names, Connections: i.Limits.Connections,
		},
		Commands: []api.CommandStatus{},
	}
	for _, c := range i.Commands {
		out.Commands = append(out.Commands, Command(c))
	}
	if i.Frozen {
		out.State = "frozen"
	}
	return out
}

// Command translates where a command stands.
func Command(c sandbox.Status) api.CommandStatus {
	var processes []api.Process
	for _, p := range c.Processes {
		processes = append(processes, api.Process(p))
	}
	return api.CommandStatus{
		Cut: c.Cut, Input: c.Input, InputOpen: c.InputOpen, Terminal: c.Terminal, Processes: processes,
		ID: c.ID, Phase: string(c.Phase), PID: c.PID, ExitCode: c.ExitCode, Signal: c.Signal, Reason: string(c.Reason),
		TimedOut: c.TimedOut, Started: c.Started, Error: c.Error, Output: c.Output,
		StartedAt: Moment(c.StartedAt), EndedAt: Moment(c.EndedAt), Children: slices.Clone(c.Children),
	}
}

// Token translates what is told of a token, which is not its secret.
func Token(t identity.Token) api.Token {
	return api.Token{ID: t.ID, User: t.User, Role: string(t.Role), Note: t.Note, CreatedAt: t.CreatedAt, ExpiresAt: Moment(t.ExpiresAt)}
}

// Moment is nil for the zero time.
func Moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Seconds is a duration that came as a number.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Spec translates a request for a task.
func Spec(r api.TaskRequest) task.Spec {
	return task.Spec{
		Prompt: r.Prompt, Setup: r.Setup, Verify: r.Verify, Policy: r.Policy, Project: r.Project, Report: r.Report, Files: r.Files,
		Repo: task.Repo{URL: r.Repo.URL, Bundle: task.Digest(r.Repo.Bundle), Name: r.Repo.Name, Ref: r.Repo.Ref, Credential: r.Repo.Credential},
		Agent: task.AgentSpec{
			Name: r.Agent.Name, Argv: r.Agent.Argv, Version: r.Agent.Version, Provider: r.Agent.Provider, Model: r.Agent.Model,
			ModelURL: r.Agent.ModelURL, Credential: r.Agent.Credential, Mode: r.Agent.Mode, MaxTurns: r.Agent.MaxTurns,
		},
	}
}

// AgentEvent translates what an agent said or did.
func AgentEvent(e task.AgentEvent) api.AgentEvent {
	return api.AgentEvent{
		Time: e.Time, Type: e.Type, Text: e.Text, Call: e.Call, Tool: e.Tool, Input: e.Input, Failed: e.Failed,
		Usage: (*api.ModelUsage)(e.Usage), Cut: e.Cut,
	}
}
