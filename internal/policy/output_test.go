package policy

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const flagged = "version: 1\noutput:\n  flags:\n"

// What a layer says of findings binds those below: they may be stricter.
func TestFlagsOfLayers(t *testing.T) {
	if plan := compiled(t, task.Spec{}, task.Layers{}); plan.Flags != nil || plan.Flags.Verdict(task.FlagSecret) != task.FlagApprove || plan.Flags.Verdict(task.FlagPath) != task.FlagRefuse || plan.Flags.Verdict("what") != task.FlagRefuse {
		t.Errorf("nobody says anything: %+v", plan.Flags)
	}
	layers := task.Layers{Operator: flagged + "    secret: refuse\n    mode: approve\n", Project: flagged + "    workflow: refuse\n    binary: allow\n"}
	spec := task.Spec{Project: "web", Policy: flagged + "    mode: refuse\n    binary: approve\n    build: allow\n"}
	want := task.FlagRules{task.FlagSecret: task.FlagRefuse, task.FlagMode: task.FlagRefuse, task.FlagWorkflow: task.FlagRefuse, task.FlagBinary: task.FlagApprove, task.FlagBuild: task.FlagAllow}
	plan := compiled(t, spec, layers)
	for _, k := range task.FlagKinds() {
		if got := plan.Flags[k.Flag]; got != want[k.Flag] {
			t.Errorf("%s: %q, want %q", k.Flag, got, want[k.Flag])
		}
	}
	if same := compiled(t, task.Spec{Project: "web"}, layers); same.Digest == plan.Digest {
		t.Error("what flags mean is not in the policy's digest")
	}
	_, lines, err := Explain(spec, layers, task.Agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Line{
		{Field: "output.flags.secret", Text: "refuse", Layer: "operator", Line: 4},
		{Field: "output.flags.mode", Text: "refuse", Layer: "task", Line: 4},
		{Field: "output.flags.build", Text: "allow", Layer: "task", Line: 6},
		{Field: "output.flags.licence", Text: "approve", Layer: "default"},
	} {
		if !slices.ContainsFunc(lines, func(l Line) bool { l.Note = ""; return l == want }) {
			t.Errorf("no line %+v in %+v", want, lines)
		}
	}
}

func TestFlagsThatAreRefused(t *testing.T) {
	layers := task.Layers{Operator: flagged + "    secret: refuse\n", Project: flagged + "    workflow: approve\n"}
	for text, want := range map[string]string{
		flagged + "    secret: approve\n": "policy line 4: output.flags.secret: approve is more than refuse; the operator policy allows no more",
		flagged + "    workflow: allow\n": "policy line 4: output.flags.workflow: allow is more than approve; the policy of project web allows no more",
	} {
		_, err := Compile(task.Spec{Project: "web", Policy: text}, layers)
		wantFailure(t, err, task.PolicyCeiling, want)
	}
	_, err := Compile(task.Spec{Project: "web"}, task.Layers{Operator: layers.Operator, Project: flagged + "    secret: allow\n"})
	wantFailure(t, err, task.PolicyCeiling, "policy of project web line 4: output.flags.secret")
	for text, want := range map[string]string{
		flagged + "    secrets: refuse\n":                        "line 4: output.flags.secrets: unknown kind; known here: agent, binary",
		flagged + "    secret: deny\n":                           `line 4: output.flags.secret: "deny" is not one of refuse, approve, allow`,
		flagged + "    secret: [refuse]\n":                       `output.flags.secret: "" is not one of`,
		flagged + "    secret: refuse\n    secret: allow\n":      "",
		"version: 1\noutput: {flag: {}}\n":                       "line 2: output.flag: unknown field; known here: flags",
		"version: 1\noutput: [flags]\n":                          "line 2: output: must be a mapping of flags",
		"version: 1\noutput: {flags: secret}\n":                  "line 2: output.flags: must be a mapping of kinds",
		"version: 1\noutput: {flags: {secret: refuse, 1: {}}}\n": "output.flags.1: unknown kind",
	} {
		_, err := Compile(task.Spec{Policy: text}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, want)
	}
	// A repository has no say in it.
	plan := compiled(t, task.Spec{}, task.Layers{Repository: flagged + "    secret: allow\n"})
	if plan.Flags != nil || len(plan.Narrowed) != 1 {
		t.Errorf("%+v", plan)
	}
}
