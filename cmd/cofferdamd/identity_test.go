package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/task"
)

type noRuns struct{}

func (noRuns) Task(context.Context, string) (task.Task, error) {
	return task.Task{}, errors.New("none")
}

func (noRuns) SandboxWorker(context.Context, string) (string, error) { return "", nil }

func (noRuns) Record(context.Context, string, string, string, string, any) error { return nil }

// A policy that gives tokens is refused when a task is asked for, where nothing
// could sign them: the failure names the flag.
func TestPolicyNeedsAnIssuer(t *testing.T) {
	open := func(url string) *policies {
		i, err := issuer.Open(issuer.Options{URL: url, Dir: t.TempDir(), Runs: noRuns{}, Audit: noRuns{}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		return &policies{issuer: i}
	}
	const text = "version: 1\nagent:\n  identity:\n    - audience: a\n"
	layers := task.Layers{Operator: "version: 1\nceiling:\n  identity:\n    - audience: a\n"}
	spec := task.Spec{Policy: text, Repo: task.Repo{Bundle: "sha256:00"}}
	var f *task.Failure
	if _, err := open("").Compile(spec, layers); !errors.As(err, &f) || f.Reason != task.InputPolicy || !strings.Contains(f.Text, "--issuer") {
		t.Errorf("without: %v", err)
	}
	if plan, err := open("https://issuer.example").Compile(spec, layers); err != nil || len(plan.Identity[task.Agent]) != 1 || !plan.Spec("t-a", 1, "agent").Network {
		t.Errorf("with: %+v %v", plan, err)
	}
	if _, err := open("").Compile(task.Spec{Repo: spec.Repo}, layers); err != nil {
		t.Errorf("without any: %v", err)
	}
}

func TestRunTokensCannotBeTakenBack(t *testing.T) {
	if err := (runTokens{}).Revoke(t.Context(), task.Credential{}, task.Secret{}, task.Secret{}); !errors.Is(err, credential.ErrLasts) {
		t.Error(err)
	}
}
