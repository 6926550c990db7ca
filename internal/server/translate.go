package server

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

// apiTask translates a task; lists are never null.
func apiTask(t task.Task) api.Task {
	out := api.Task{
		ID: t.ID, State: string(t.State), Reason: string(t.Reason), Text: t.Text, RequestedBy: t.RequestedBy,
		Repo: t.Repo, Ref: t.Ref, Commit: t.Commit, Worker: t.Worker, PolicyDigest: string(t.PolicyDigest),
		Attempt: t.Attempt, Stages: []api.Stage{}, Outputs: []api.Output{}, Actions: []api.Action{}, Leases: []api.Lease{}, History: []api.StageRun{},
		Project: t.Spec.Project, Narrowed: t.Layers.Narrowed,
		Usage: apiUsage(t.Usage), CreatedAt: t.CreatedAt, EndedAt: t.EndedAt,
	}
	for _, st := range t.Stages {
		out.Stages = append(out.Stages, apiStage(st))
	}
	for _, o := range t.Outputs {
		out.Outputs = append(out.Outputs, apiOutput(o))
	}
	for _, a := range t.Actions {
		out.Actions = append(out.Actions, api.Action(a))
	}
	return out
}

func apiUsage(u task.Usage) api.Usage {
	return api.Usage{
		Sandboxes: u.Sandboxes, WallSeconds: u.WallSeconds, EgressAllowed: u.EgressAllowed, EgressDenied: u.EgressDenied,
		BytesIn: u.BytesIn, BytesOut: u.BytesOut, Model: api.ModelUsage(u.Model),
	}
}

func apiStage(st task.Stage) api.Stage {
	return api.Stage{
		Name: string(st.Name), State: string(st.State), Reason: string(st.Reason), Text: st.Text, Attempts: st.Attempts,
		Sandbox: st.Sandbox, ExitCode: st.ExitCode, StartedAt: st.StartedAt, EndedAt: st.EndedAt,
	}
}

func apiOutput(o task.Output) api.Output {
	flags := o.Flags
	if flags == nil {
		flags = []string{}
	}
	out := api.Output{Name: o.Name, Kind: o.Kind, Digest: string(o.Digest), Size: o.Size, Flags: flags, RemovedAt: o.Removed}
	if utf8.Valid(o.Path) {
		out.Path = string(o.Path)
	} else {
		out.PathBase64 = base64.StdEncoding.EncodeToString(o.Path)
	}
	return out
}

func apiEgress(r task.EgressRecord) api.EgressRecord {
	return api.EgressRecord{
		Seq: r.Seq, Conn: r.Conn, Done: r.Done, Time: r.Time, Sandbox: r.Sandbox, Task: r.Task, Stage: string(r.Stage),
		Name: r.Name, Address: r.Address, Port: r.Port, Protocol: r.Protocol, SNI: r.SNI, Host: r.HostName,
		Verdict: r.Verdict, Reason: string(r.Reason), Rule: r.Rule, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
	}
}

// apiEvent translates an event; its data is of a type of package task or, out
// of a store, JSON already.
func apiEvent(e task.Event) (api.Event, error) {
	var data any
	switch v := e.Data.(type) {
	case task.Stage:
		data = apiStage(v)
	case task.Output:
		data = apiOutput(v)
	case task.EgressRecord:
		data = apiEgress(v)
	case task.PolicyNote:
		data = api.PolicyNote{Layer: v.Layer, Narrowed: append([]string{}, v.Narrowed...)}
	case task.AgentEvent:
		data = apiAgentEvent(v)
	case task.Task:
		data = apiTask(v)
	default:
		data = v
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return api.Event{}, fmt.Errorf("event %d of %s: %w", e.Seq, e.Task, err)
	}
	return api.Event{Seq: e.Seq, Task: e.Task, Time: e.Time, Type: e.Type, Data: raw}, nil
}

func apiSandbox(owner, worker string, i sandbox.Info) api.Sandbox {
	out := api.Sandbox{
		ID: i.ID, Owner: owner, Task: i.Task, Role: i.Role, Worker: worker, State: string(i.State), Reason: string(i.Reason),
		Network: i.Network, Sudo: i.Sudo, PID: i.PID, Kernel: i.Kernel, CreatedAt: i.CreatedAt, ExpiresAt: moment(i.Expires),
		Limits: api.Limits{
			MilliCPU: i.Limits.MilliCPU, Memory: i.Limits.Memory, PIDs: i.Limits.PIDs, Disk: i.Limits.Disk,
			Output: i.Limits.Output, TimeSeconds: i.Limits.Time.Seconds(), Inodes: i.Limits.Inodes, Files: i.Limits.Files,
			Names: i.Limits.Names, Connections: i.Limits.Connections,
		},
		Commands: []api.CommandStatus{},
	}
	for _, c := range i.Commands {
		out.Commands = append(out.Commands, apiStatus(c))
	}
	return out
}

func apiStatus(c sandbox.Status) api.CommandStatus {
	var processes []api.Process
	for _, p := range c.Processes {
		processes = append(processes, api.Process(p))
	}
	return api.CommandStatus{
		Cut: c.Cut, Input: c.Input, InputOpen: c.InputOpen, Terminal: c.Terminal, Processes: processes,
		ID: c.ID, Phase: string(c.Phase), PID: c.PID, ExitCode: c.ExitCode, Signal: c.Signal, Reason: string(c.Reason),
		TimedOut: c.TimedOut, Started: c.Started, Error: c.Error, Output: c.Output,
		StartedAt: moment(c.StartedAt), EndedAt: moment(c.EndedAt), Children: slices.Clone(c.Children),
	}
}

func apiToken(t identity.Token) api.Token {
	return api.Token{ID: t.ID, User: t.User, Role: string(t.Role), Note: t.Note, CreatedAt: t.CreatedAt, ExpiresAt: moment(t.ExpiresAt)}
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// seconds is a duration that came as a number.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// specOf translates a request for a task.
func specOf(r api.TaskRequest) task.Spec {
	return task.Spec{
		Prompt: r.Prompt, Setup: r.Setup, Verify: r.Verify, Policy: r.Policy, Project: r.Project, Report: r.Report, Files: r.Files,
		Repo: task.Repo{URL: r.Repo.URL, Bundle: task.Digest(r.Repo.Bundle), Name: r.Repo.Name, Ref: r.Repo.Ref},
		Agent: task.AgentSpec{
			Name: r.Agent.Name, Argv: r.Agent.Argv, Version: r.Agent.Version, Provider: r.Agent.Provider, Model: r.Agent.Model,
			ModelURL: r.Agent.ModelURL, Credential: r.Agent.Credential, MaxTurns: r.Agent.MaxTurns,
		},
	}
}
