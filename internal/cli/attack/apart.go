package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/cli/attack/apart"
)

// What the crowded sandbox may have.
const (
	mostNames       = 24
	mostConnections = 16
)

// besides are the checks of a platform apart that this command tries itself.
func besides() []string {
	return []string{"credential.at-rest", "credential.told", "credential.elsewhere", "protect.patch", "limits.elsewhere"}
}

// elsewhere are the selected checks that need a platform apart.
func elsewhere(checks []attack.Check) []string {
	var ids []string
	for _, k := range checks {
		if k.Box == attack.Lent || k.Box == attack.Crowded || slices.Contains(besides(), k.ID) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// apart tries what needs servers outside of our own, on a platform of its own.
func (a *assault) apart(ctx context.Context, checks []attack.Check) (err error) {
	ids := elsewhere(checks)
	if len(ids) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		a.untried(ids, fmt.Errorf("run this as root: it is tried on a platform apart, which needs what `cofferdam up` does"))
		return nil
	}
	far, err := apart.NewFar(a.can.nonce)
	if err != nil {
		a.untried(ids, err)
		return nil
	}
	defer func() { err = joined(err, far.Close()) }()
	p, err := apart.Up(ctx, a.o.bin, far)
	defer func() { err = joined(err, p.Down(ctx)) }()
	if err == nil {
		err = p.Lend(ctx, far)
	}
	if err != nil {
		a.untried(ids, err)
		return nil
	}
	b := a.beside(far)
	b.crowded(ctx, p.Client, checks)
	b.lent(ctx, p, far, checks)
	a.settle(far, ids)
	a.untried(ids, ctx.Err())
	return nil
}

func joined(err, other error) error {
	if err == nil {
		return other
	}
	if other == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, other)
}

// beside is the part of this run on the platform apart.
func (a *assault) beside(far *apart.Far) *side {
	s := &side{assault: a, plan: a.plan, policy: far.OpenPolicy()}
	s.plan.Far = far.Ports
	s.plan.Far.Names, s.plan.Far.Most = mostNames, mostConnections
	return s
}

// side is a run on the platform apart.
type side struct {
	*assault
	plan   attack.Plan
	policy string
}

// crowded uses up one sandbox's names and connections, while another one asks its
// server again and again.
func (s *side) crowded(ctx context.Context, c *client.Client, checks []attack.Check) {
	ids := of(checks, attack.Crowded)
	tell := slices.ContainsFunc(checks, func(k attack.Check) bool { return k.ID == "limits.elsewhere" })
	if len(ids) == 0 && !tell {
		return
	}
	plan := s.plan
	plan.IDs, plan.Abreast = ids, 1
	full, err := s.bring(ctx, c, attack.Crowded, api.SandboxRequest{Policy: s.policy, Limits: &api.Limits{Names: mostNames, Connections: mostConnections}}, plan)
	if err != nil {
		s.untried(append(ids, "limits.elsewhere"), err)
		return
	}
	calm, err := s.bring(ctx, c, attack.Neighbour, api.SandboxRequest{Policy: s.policy}, plan)
	if err != nil {
		s.untried(append(ids, "limits.elsewhere"), err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- s.inside(ctx, c, full, ids) }()
	reached := 0
	for during := true; during; {
		select {
		case err = <-ended:
			during = false // and once more, afterwards
		default:
		}
		if said, rerr := reach(ctx, c, calm); rerr != nil {
			if during {
				err = <-ended
			}
			s.untried(ids, err)
			if ctx.Err() == nil && tell {
				s.say("limits.elsewhere", attack.Fell, "another sandbox did not reach its server: %s %v", said, rerr)
			}
			return
		}
		reached++
	}
	s.untried(ids, err)
	if tell {
		s.say("limits.elsewhere", attack.Held, "another sandbox reached its server %d times meanwhile, and afterwards", reached)
	}
}

// reach has a sandbox ask its server.
func reach(ctx context.Context, c *client.Client, id string) (string, error) {
	said := limited{most: 500}
	st, err := c.Run(ctx, id, api.ExecRequest{Argv: []string{program, planned, "reach"}, TimeoutSeconds: 60}, &said, &said)
	if err == nil && (st.ExitCode != 0 || st.Error != "") {
		err = fmt.Errorf("it ended with %d %s", st.ExitCode, st.Error)
	}
	return said.buf.String(), err
}

// lent tries what a task with credentials must not do, and looks afterwards where
// their values are.
func (s *side) lent(ctx context.Context, p *apart.Platform, far *apart.Far, checks []attack.Check) {
	ids := of(checks, attack.Lent)
	plan := s.plan
	plan.IDs = ids
	text, err := json.Marshal(plan)
	if err != nil {
		s.untried(ids, err)
		return
	}
	files := map[string][]byte{
		strings.TrimPrefix(planned, "/workspace/"): text, strings.TrimPrefix(program, "/workspace/"): s.program,
		".vscode/tasks.json": []byte("{}\n"), "README.md": []byte("For the attack suite.\n"),
	}
	task, said, err := p.Task(ctx, far, files, []string{program, planned})
	for line := range strings.Lines(said) {
		// Git's own words may be among them.
		if got, rerr := attack.ReadSaying(line, ids); rerr == nil {
			s.say(got.ID, got.Outcome, "%s", got.Happened)
		}
	}
	s.untried(elsewhere(checks), err)
	if err != nil {
		return
	}
	for _, id := range elsewhere(checks) {
		switch id {
		case "credential.at-rest":
			found, n, err := p.AtRest(far)
			s.judge(id, found, err, "%d files of the platform were read, and none has a value", n)
		case "credential.told":
			found, n, err := p.Told(ctx, far, task.ID)
			s.judge(id, found, err, "%d bytes about the task were read, and have no value", n)
		case "credential.elsewhere":
			_, n := far.Right()
			s.say(id, attack.Held, "%d requests came to the servers, and none had a value that did not belong there", n)
		case "protect.patch":
			paths, err := p.Patch(ctx, task.ID)
			i := slices.IndexFunc(paths, guarded)
			found := ""
			if i >= 0 {
				found = paths[i]
			}
			s.judge(id, found, err, "the patch changes %d paths, and none that is protected", len(paths))
		}
	}
}

// guarded says whether a path is one of those that are protected by default and that
// the task tried to change.
func guarded(path string) bool {
	return slices.Contains([]string{".gitmodules", ".gitattributes", ".mcp.json", ".envrc"}, path) || strings.HasPrefix(path, ".git/") || strings.HasPrefix(path, ".claude/") || strings.HasPrefix(path, ".vscode/")
}

func (a *assault) judge(id, found string, err error, format string, args ...any) {
	switch {
	case err != nil:
		a.say(id, attack.Untried, "%v", err)
	case found != "":
		a.say(id, attack.Fell, "%s has it", found)
	default:
		a.say(id, attack.Held, format, args...)
	}
}

// settle has what the servers saw outweigh what was said inside. Without values that
// arrived where they belong, no refusal of one proves anything.
func (a *assault) settle(far *apart.Far, ids []string) {
	for id, what := range far.Fell() {
		if slices.Contains(ids, id) {
			a.struck(id, what)
		}
	}
	// One value is enough for a run of few checks.
	if n, _ := far.Right(); n == 0 {
		for _, id := range ids {
			if attack.Family(id) == "credential" {
				a.doubt(id, "no value arrived where it belongs, so that nothing is proved")
			}
		}
	}
}
