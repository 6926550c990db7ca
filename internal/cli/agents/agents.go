// Package agents carries out the commands about agents' programs: install,
// list and remove them. The command tree that calls it is package cli's.
package agents

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Client is what the commands ask the server through. Implemented by client.
type Client interface {
	InstallAgent(ctx context.Context, name, version string) (api.InstalledAgentList, error)
	Agents(ctx context.Context) (api.InstalledAgentList, error)
	RemoveAgent(ctx context.Context, name, version string) (api.AgentRemoval, error)
}

// pace is how often the server is asked how an installation goes on.
const pace = 300 * time.Millisecond

// Install has the workers install "NAME" or "NAME@VERSION", tells note how it
// goes on, and returns when every worker that answers has it or failed. The
// error is the first worker's failure, as an *api.Problem.
func Install(ctx context.Context, c Client, what string, note func(string)) (api.InstalledAgentList, error) {
	name, version, _ := strings.Cut(what, "@")
	list, err := c.InstallAgent(ctx, name, version)
	if err != nil {
		return list, err
	}
	wanted := version
	for _, a := range list.Agents {
		wanted = a.Version
	}
	told := ""
	for {
		mine, state := stateOf(list, name, wanted)
		if line := progress(mine); line != told && state != api.AgentInstalled {
			told = line
			note(line)
		}
		switch state {
		case api.AgentInstalled:
			return mine, nil
		case api.AgentFailed:
			return mine, failure(mine)
		}
		select {
		case <-ctx.Done():
			return mine, ctx.Err()
		case <-time.After(pace):
		}
		if list, err = c.Agents(ctx); err != nil {
			return mine, err
		}
		// A worker that was restarted meanwhile has forgotten: ask again.
		if now, _ := stateOf(list, name, wanted); len(now.Agents) < len(mine.Agents) {
			if list, err = c.InstallAgent(ctx, name, wanted); err != nil {
				return mine, err
			}
		}
	}
}

// stateOf picks one agent and says where the slowest worker stands with it.
func stateOf(list api.InstalledAgentList, name, version string) (api.InstalledAgentList, string) {
	mine := api.InstalledAgentList{Agents: []api.InstalledAgent{}, Lost: list.Lost}
	state := api.AgentInstalled
	for _, a := range list.Agents {
		if a.Name != name || a.Version != version {
			continue
		}
		mine.Agents = append(mine.Agents, a)
		if a.State == api.AgentInstalling || a.State == api.AgentFailed && state == api.AgentInstalled {
			state = a.State
		}
	}
	if len(mine.Agents) == 0 {
		state = api.AgentInstalling
	}
	return mine, state
}

func progress(list api.InstalledAgentList) string {
	var parts []string
	for _, a := range list.Agents {
		part := a.Worker + ": " + a.State
		switch {
		case a.State == api.AgentInstalling && a.Total > 0 && a.Done < a.Total:
			part = fmt.Sprintf("%s: %d of %d MB", a.Worker, a.Done/1_000_000, a.Total/1_000_000)
		case a.State == api.AgentInstalling && a.Total > 0:
			part = a.Worker + ": unpacking"
		}
		parts = append(parts, show.Line(part))
	}
	return strings.Join(parts, ", ")
}

func failure(list api.InstalledAgentList) error {
	for _, a := range list.Agents {
		if a.State == api.AgentFailed {
			return &api.Problem{Code: a.Reason, Detail: "worker " + a.Worker + ": " + a.Text}
		}
	}
	return nil
}

// Table prints agents.
func Table(out io.Writer, list api.InstalledAgentList) error {
	rows := [][]string{}
	for _, a := range list.Agents {
		state := a.State
		if a.Text != "" {
			state += " (" + a.Reason + ": " + a.Text + ")"
		}
		tried := "no"
		if a.Pinned {
			tried = "yes"
		}
		size := ""
		if a.Size > 0 {
			size = fmt.Sprintf("%d MB", a.Size/1_000_000)
		}
		rows = append(rows, []string{a.Name, a.Version, state, tried, size, a.Worker})
	}
	if err := show.Table(out, []string{"AGENT", "VERSION", "STATE", "TRIED", "SIZE", "WORKER"}, rows); err != nil {
		return err
	}
	for _, w := range list.Lost {
		if _, err := fmt.Fprintln(out, "worker "+show.Line(w)+" did not answer"); err != nil {
			return err
		}
	}
	return nil
}
