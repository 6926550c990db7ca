package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Agent is an agent's program on one worker.
type Agent struct {
	Worker string
	link.Agent
}

// everyWorker asks each connected worker at once. lost names those that don't
// answer or are away. The first failure that a worker told is the error.
func everyWorker[T any](ctx context.Context, f *Fleet, ask func(context.Context, *conn) (T, error)) (answers map[string]T, lost []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for _, w := range f.Workers() {
		if w.State == Lost {
			lost = append(lost, w.ID)
		}
	}
	conns, _ := f.registry.connected()
	answers = map[string]T{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, c := range conns {
		asking.Go(func() {
			answer, failed := ask(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			_, broke := errors.AsType[*brokenError](failed)
			switch {
			case failed == nil:
				answers[c.worker] = answer
			case broke:
				lost = append(lost, c.worker)
			case err == nil:
				err = failed
			}
		})
	}
	asking.Wait()
	slices.Sort(lost)
	if err == nil && len(answers) == 0 {
		err = task.Fail(task.InfraWorkerLost, "no worker is connected; see that cofferdam-worker runs and reaches the control plane", nil)
	}
	return answers, lost, err
}

// InstallAgent has every connected worker begin to install the agent, unless it
// has it, and says where each stands. An empty version is the one that the
// worker's release was tried with.
func (f *Fleet) InstallAgent(ctx context.Context, name, version string) (agents []Agent, lost []string, err error) {
	answers, lost, err := everyWorker(ctx, f, func(ctx context.Context, c *conn) (link.Agent, error) {
		var a link.Agent
		if err := c.exchange(ctx, http.MethodPost, "/agents", link.AgentRequest{Name: name, Version: version}, &a); err != nil {
			return a, err
		}
		if a.Name != name || version != "" && a.Version != version {
			return a, protocol(c.worker, fmt.Errorf("asked for agent %q, got %q", name, a.Name))
		}
		return checkAgent(c.worker, a)
	})
	if err != nil {
		return nil, lost, err
	}
	for worker, a := range answers {
		agents = append(agents, Agent{worker, a})
	}
	sortAgents(agents)
	return agents, lost, nil
}

// Agents returns the agents of the workers that answer; lost names the others.
func (f *Fleet) Agents(ctx context.Context) (agents []Agent, lost []string, err error) {
	answers, lost, err := everyWorker(ctx, f, func(ctx context.Context, c *conn) ([]link.Agent, error) {
		var list link.AgentList
		if err := c.exchange(ctx, http.MethodGet, "/agents", nil, &list); err != nil {
			return nil, err
		}
		if len(list.Agents) > link.MaxAgents {
			return nil, protocol(c.worker, fmt.Errorf("%d agents", len(list.Agents)))
		}
		for i, a := range list.Agents {
			checked, err := checkAgent(c.worker, a)
			if err != nil {
				return nil, err
			}
			list.Agents[i] = checked
		}
		return list.Agents, nil
	})
	for worker, list := range answers {
		for _, a := range list {
			agents = append(agents, Agent{worker, a})
		}
	}
	sortAgents(agents)
	return agents, lost, err
}

// RemoveAgent has every connected worker remove the agent. It is not found when
// none has it.
func (f *Fleet) RemoveAgent(ctx context.Context, name, version string) (workers, lost []string, err error) {
	path := "/agents/" + url.PathEscape(name) + "/" + url.PathEscape(version)
	answers, lost, err := everyWorker(ctx, f, func(ctx context.Context, c *conn) (bool, error) {
		err := c.exchange(ctx, http.MethodDelete, path, nil, nil)
		var failure *task.Failure
		if errors.As(err, &failure) && failure.Reason == task.InputNotFound {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, lost, err
	}
	for worker, removed := range answers {
		if removed {
			workers = append(workers, worker)
		}
	}
	if len(workers) == 0 {
		return nil, lost, task.Fail(task.InputNotFound, fmt.Sprintf("no worker has agent %s@%s", name, version), nil)
	}
	slices.Sort(workers)
	return workers, lost, nil
}

func sortAgents(agents []Agent) {
	slices.SortFunc(agents, func(a, b Agent) int {
		return strings.Compare(a.Name+"@"+a.Version+" "+a.Worker, b.Name+"@"+b.Version+" "+b.Worker)
	})
}

// checkAgent bounds what a worker says.
func checkAgent(worker string, a link.Agent) (link.Agent, error) {
	long := len(a.Name) > 64 || len(a.Version) > 64 || len(a.SHA512) > 128 || len(a.Text) > 8<<10 || len(a.Reason) > 64
	known := a.State == link.AgentInstalling || a.State == link.AgentInstalled || a.State == link.AgentFailed
	if long || !known || a.Size < 0 || a.Done < 0 || a.Total < 0 {
		return a, protocol(worker, fmt.Errorf("agent %.64q in state %.64q", a.Name, a.State))
	}
	if a.State == link.AgentFailed {
		f := link.Problem{Reason: a.Reason, Text: a.Text}.Failure()
		a.Reason, a.Text = f.Reason, f.Text
	}
	return a, nil
}
