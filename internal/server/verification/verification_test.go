package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/task"
)

type blob string

func (b blob) Open(context.Context, task.Digest) (io.ReadCloser, error) {
	if b == "" {
		return nil, errors.New("none")
	}
	return io.NopCloser(strings.NewReader(string(b))), nil
}

// Every field of the evidence is one of the answer, under the same name.
func TestAnswerHasAllOfTheEvidence(t *testing.T) {
	var b report.Builder
	for _, name := range []string{"A", "B"} {
		if err := b.Take(report.Test{Suite: "p", Name: name, Outcome: report.Failed, Message: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	r, exit := b.Report("tap"), 1
	run := evidence.Run{Run: evidence.Patch, ExitCode: &exit, Reason: task.VerifyFailed, Text: "exited with 1", Tests: &r}
	base := run
	base.Run, base.Tests = evidence.Base, &report.Report{}
	text, err := evidence.New(evidence.Input{
		Base: "c", Patch: "sha256:p", Setup: "s", Command: "v", Report: "-", Judge: run, Again: &run, Before: &base, Compares: true,
		Findings: evidence.Findings{List: []evidence.Finding{{Kind: evidence.FileRemoved, Path: "a_test.go", Removed: 3}}, More: 2},
	}).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	v := Of(t.Context(), blob(text), task.Task{Outputs: []task.Output{{Kind: "patch"}, {Name: "evidence", Kind: "evidence", Digest: "sha256:e"}}})
	if v == nil || v.Digest != "sha256:e" || v.Problem != "" {
		t.Fatalf("%+v", v)
	}
	v.Digest = ""
	again, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := errors.Join(json.NewDecoder(bytes.NewReader(text)).Decode(&want), json.Unmarshal(again, &got)); err != nil {
		t.Fatal(err)
	}
	delete(got, "digest")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the answer\n%s\nis not the evidence\n%s", again, text)
	}
}

func TestEvidenceThatCannotBeRead(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		o    task.Output
		blob blob
		want string
	}{
		"removed": {task.Output{Kind: "evidence", Removed: &now}, "{}", "removed"},
		"gone":    {task.Output{Kind: "evidence"}, "", "opened"},
		"garbage": {task.Output{Kind: "evidence", Flags: []string{"flaky"}}, "[", "read"},
		"large":   {task.Output{Kind: "evidence"}, blob(strings.Repeat(" ", most) + "{}"), "read"},
	} {
		v := Of(t.Context(), c.blob, task.Task{Outputs: []task.Output{c.o}})
		if v == nil || !strings.Contains(v.Problem, c.want) || len(v.Flags) != len(c.o.Flags) || v.Runs == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := Of(t.Context(), blob(""), task.Task{}); v != (*api.Verification)(nil) {
		t.Errorf("no evidence is %+v", v)
	}
}
