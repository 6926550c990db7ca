package translate

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Approval is a question and its answer as the API shows it.
func Approval(a task.Approval) api.Approval {
	out := api.Approval{
		ID: a.ID, Kind: string(a.Kind), State: string(a.State), Task: a.Task, Project: a.Project, Stage: string(a.Stage), Attempt: a.Attempt,
		Sandbox: a.Sandbox, Requester: a.Requester, Digest: string(a.Digest), Commands: []api.RunningCommand{}, Count: a.Count, Admins: a.Admins,
		AskedAt: a.AskedAt, ExpiresAt: a.ExpiresAt, Scope: string(a.Scope), Decision: a.Decision, DecidedBy: a.DecidedBy, DecidedAt: a.DecidedAt,
		Used: a.UsedBy != "",
	}
	for _, c := range a.Commands {
		out.Commands = append(out.Commands, api.RunningCommand(c))
	}
	var err error
	switch a.Kind {
	case task.AskEgress:
		out.Egress = new(api.EgressAsk)
		err = json.Unmarshal(a.What, out.Egress)
	case task.AskTool:
		out.Tool = new(api.ToolAsk)
		err = json.Unmarshal(a.What, out.Tool)
	default:
		out.Action = a.What
	}
	if err != nil { // of a newer program
		out.Egress, out.Tool, out.Action = nil, nil, a.What
	}
	return out
}
