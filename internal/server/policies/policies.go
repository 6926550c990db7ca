// Package policies is the part of the server that answers questions about
// policies and keeps the projects' layers. What a policy comes to is said by
// policy, through the Judge; nothing is decided here.
package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Judge is what policy says. Implemented by policy through cmd. Errors are
// *task.Failure.
type Judge interface {
	Layers(ctx context.Context, project string) (task.Layers, error)
	Explain(spec task.Spec, layers task.Layers, stage task.StageName) (api.PolicyExplanation, error)
	Check(spec task.Spec, layers task.Layers) ([]api.PolicyExample, error)
	// CheckProject judges a text as a project's layer beneath the operator's.
	CheckProject(name, text string) ([]api.PolicyExample, error)
}

// Projects keeps the projects' layers. Implemented by store.
type Projects interface {
	SetProject(ctx context.Context, p task.Project) error
	Project(ctx context.Context, name string) (task.Project, error)
	Projects(ctx context.Context) ([]task.Project, error)
	RemoveProject(ctx context.Context, name string) error
}

// Audit takes what is changed. Implemented by audit.
type Audit interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Desk answers about policies. All fields are required. It is safe for
// concurrent use.
type Desk struct {
	Judge    Judge
	Projects Projects
	Audit    Audit
	Now      func() time.Time
}

// layers are those of the question's project.
func (d *Desk) layers(ctx context.Context, project string) (task.Layers, error) {
	layers, err := d.Judge.Layers(ctx, project)
	var f *task.Failure
	if errors.As(err, &f) && f.Reason == task.InputNotFound {
		return layers, noProject(project)
	}
	return layers, err
}

func noProject(name string) error {
	return task.Fail(task.InputNotFound, fmt.Sprintf("there is no project %q; `cofferdam policy project ls` lists them", name), nil)
}

// Explain gives the effective policy line by line. Keys are those of who asks.
func (d *Desk) Explain(ctx context.Context, q api.PolicyQuestion, keys task.ModelKeys) (api.PolicyExplanation, error) {
	layers, err := d.layers(ctx, q.Project)
	if err != nil {
		return api.PolicyExplanation{}, err
	}
	layers.Models = keys
	spec := task.Spec{Policy: q.Policy, Project: q.Project, Agent: task.AgentSpec{Name: q.Agent}}
	return d.Judge.Explain(spec, layers, task.StageName(q.Stage))
}

// Check runs the examples of a policy file.
func (d *Desk) Check(ctx context.Context, q api.PolicyQuestion) (api.PolicyCheck, error) {
	layers, err := d.layers(ctx, q.Project)
	if err != nil {
		return api.PolicyCheck{}, err
	}
	examples, err := d.Judge.Check(task.Spec{Policy: q.Policy, Project: q.Project}, layers)
	return checked(examples), err
}

func checked(examples []api.PolicyExample) api.PolicyCheck {
	c := api.PolicyCheck{Passed: true, Examples: append([]api.PolicyExample{}, examples...)}
	for _, e := range examples {
		c.Passed = c.Passed && e.Passed
	}
	return c
}

// Set keeps a project's layer, after its own examples held. By is who asks.
func (d *Desk) Set(ctx context.Context, name, text, by string) (api.Project, error) {
	if !task.ValidProject(name) {
		return api.Project{}, task.Fail(task.InputInvalid, "name: must be 1 to 64 letters, digits, '-', '_' and '.', beginning with a letter or digit", nil)
	}
	examples, err := d.Judge.CheckProject(name, text)
	if err != nil {
		return api.Project{}, err
	}
	var wrong []string
	for _, e := range examples {
		if !e.Passed {
			wrong = append(wrong, fmt.Sprintf("line %d: the example %q %s", e.Line, e.Text, e.Why))
		}
	}
	if len(wrong) > 0 {
		return api.Project{}, task.Fail(task.InputPolicy, strings.Join(wrong, "; "), nil)
	}
	sum := sha256.Sum256([]byte(text))
	p := task.Project{Name: name, Text: text, Digest: task.Digest("sha256:" + hex.EncodeToString(sum[:])), By: by, At: d.Now()}
	if err := d.record(ctx, "project.set", p); err != nil {
		return api.Project{}, err
	}
	return shown(p), d.Projects.SetProject(ctx, p)
}

// record writes a change down before it is made.
func (d *Desk) record(ctx context.Context, kind string, p task.Project) error {
	facts := map[string]any{"project": p.Name, "digest": p.Digest, "by": p.By}
	key := fmt.Sprintf("%s/%s/%d", kind, p.Name, p.At.UnixNano())
	return d.Audit.Record(ctx, "", key, kind, "control plane", facts)
}

// Get returns a project's layer.
func (d *Desk) Get(ctx context.Context, name string) (api.Project, error) {
	p, err := d.Projects.Project(ctx, name)
	return shown(p), known(err, name)
}

// List returns all projects' layers without their texts.
func (d *Desk) List(ctx context.Context) (api.ProjectList, error) {
	all, err := d.Projects.Projects(ctx)
	list := api.ProjectList{Projects: []api.Project{}}
	for _, p := range all {
		one := shown(p)
		one.Text = ""
		list.Projects = append(list.Projects, one)
	}
	return list, err
}

// Remove forgets a project's layer. Tasks beneath it keep their copy.
func (d *Desk) Remove(ctx context.Context, name, by string) error {
	p, err := d.Projects.Project(ctx, name)
	if err != nil {
		return known(err, name)
	}
	p.By, p.At = by, d.Now()
	if err := d.record(ctx, "project.removed", p); err != nil {
		return err
	}
	return known(d.Projects.RemoveProject(ctx, name), name)
}

// known says in words that there is no such project.
func known(err error, name string) error {
	var f *task.Failure
	if errors.As(err, &f) && f.Reason == task.InputNotFound {
		return noProject(name)
	}
	return err
}

func shown(p task.Project) api.Project {
	return api.Project{Name: p.Name, Digest: string(p.Digest), By: p.By, At: p.At, Text: p.Text}
}
