package server

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s *Server) describePolicies() {
	register(s, operation.Operation{
		ID: "explain-policy", Method: http.MethodPost, Path: "/v1/policy/explain", Access: operation.Users, Max: 4 << 20, Status: http.StatusOK,
		Summary: "What a policy comes to beneath the layers above it, and who said each line",
	}, s.explainPolicy)
	register(s, operation.Operation{
		ID: "check-policy", Method: http.MethodPost, Path: "/v1/policy/check", Access: operation.Users, Max: 4 << 20, Status: http.StatusOK,
		Summary: "Run the examples of a policy file",
	}, s.checkPolicy)
	register(s, operation.Operation{ID: "list-projects", Method: http.MethodGet, Path: "/v1/projects", Access: operation.Users, Summary: "The projects' policy layers"}, s.listProjects)
	register(s, operation.Operation{ID: "get-project", Method: http.MethodGet, Path: "/v1/projects/{name}", Access: operation.Users, Summary: "One project's policy layer"}, s.getProject)
	register(s, operation.Operation{
		ID: "set-project", Method: http.MethodPut, Path: "/v1/projects/{name}", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Set a project's policy layer, after its own examples held",
	}, s.setProject)
	register(s, operation.Operation{
		ID: "remove-project", Method: http.MethodDelete, Path: "/v1/projects/{name}", Access: operation.Admins, Status: http.StatusNoContent,
		Summary: "Forget a project's policy layer; its tasks keep their copy",
	}, s.removeProject)
}

type policyInput struct{ Body api.PolicyQuestion }

type explanationOutput struct{ Body api.PolicyExplanation }

func (s *Server) explainPolicy(ctx context.Context, in *policyInput) (*explanationOutput, error) {
	keys, err := s.need.Credentials.ModelKeys(ctx, who(ctx).User)
	if err != nil {
		return nil, err
	}
	e, err := s.need.Policy.Explain(ctx, in.Body, keys)
	if err != nil {
		return nil, policyProblem(err)
	}
	return &explanationOutput{e}, nil
}

type checkOutput struct{ Body api.PolicyCheck }

func (s *Server) checkPolicy(ctx context.Context, in *policyInput) (*checkOutput, error) {
	c, err := s.need.Policy.Check(ctx, in.Body)
	if err != nil {
		return nil, policyProblem(err)
	}
	return &checkOutput{c}, nil
}

type projectPath struct {
	Name string `path:"name" maxLength:"64"`
}

type setProjectInput struct {
	Name string `path:"name" maxLength:"64"`
	Body api.ProjectRequest
}

type projectOutput struct{ Body api.Project }

func (s *Server) setProject(ctx context.Context, in *setProjectInput) (*projectOutput, error) {
	p, err := s.need.Policy.Set(ctx, in.Name, in.Body.Text, who(ctx).User)
	if err != nil {
		return nil, err
	}
	return &projectOutput{p}, nil
}

func (s *Server) getProject(ctx context.Context, in *projectPath) (*projectOutput, error) {
	p, err := s.need.Policy.Get(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &projectOutput{p}, nil
}

type projectsOutput struct{ Body api.ProjectList }

func (s *Server) listProjects(ctx context.Context, _ *struct{}) (*projectsOutput, error) {
	list, err := s.need.Policy.List(ctx)
	return &projectsOutput{list}, err
}

func (s *Server) removeProject(ctx context.Context, in *projectPath) (*struct{}, error) {
	return nil, s.need.Policy.Remove(ctx, in.Name, who(ctx).User)
}

// detail fills what only the answer about one task has of its policy and its
// retries.
func (s *Server) detail(ctx context.Context, t task.Task, out *api.Task) error {
	runs, err := s.need.History.History(ctx, t.ID)
	if err != nil {
		return err
	}
	// A policy that can't be compiled any longer tells nothing.
	if plan, err := s.need.Policies.Compile(t.Spec, t.Layers); err == nil && plan.Model.Mode != "" {
		m := api.ModelAccess(plan.Model)
		out.Model = &m
	}
	for _, r := range runs {
		out.History = append(out.History, api.StageRun{
			Attempt: r.Attempt, Round: max(r.Round, 1), Stage: string(r.Name), State: string(r.State), Reason: string(r.Reason), Text: r.Text,
			Sandbox: r.Sandbox, ExitCode: r.ExitCode, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		})
	}
	return nil
}
