package steps

import (
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// plants is an agent that leaves what bites.
func plants() task.Spec {
	return task.Spec{Agent: shell(`mkdir -p .github/workflows && echo 'on: push' > .github/workflows/x.yml; ln -s /etc/passwd l; printf 'p\320\260y\n' > t.py
printf 'key: ghp_q7Xk2LmP9vRt4WzB8nYc''3HdJ6FsG1aTeUoVi\n' > k; printf '\000' > b`)}
}

// What bites in the patch is in its output and in the account.
func TestPatchIsFlagged(t *testing.T) {
	h := newHouse(t, plants())
	h.task.Spec.Repo.Bundle = h.repository("echo a > a; git add .; git commit -qm base")
	if o := h.through(task.Export, 1); o.State != task.StageSucceeded {
		t.Fatalf("%+v", o)
	}
	patch := h.outputOf("patch")
	var ids []string
	for _, f := range patch.Findings {
		ids = append(ids, f.ID+" "+f.Path)
	}
	if want := []string{"secret.github-pat k", "link.absolute l", "workflow.github .github/workflows/x.yml", "text.homoglyph t.py", "binary.content b"}; !slices.Equal(ids, want) || patch.Verdict != task.FlagApprove {
		t.Errorf("%s %q, want %q", patch.Verdict, ids, want)
	}
	if want := []string{"secret", "link", "workflow", "text", "binary"}; !slices.Equal(patch.Flags, want) {
		t.Errorf("flags %q", patch.Flags)
	}
	record := h.recorded(t, "patch.flagged/1/")
	for _, want := range []string{string(patch.Digest), `"verdict":"approve"`, `{"flag":"secret","verdict":"approve"}`, `"findings":5`, `"digest":"sha256:`} {
		if !strings.Contains(record, want) {
			t.Errorf("no %s in %s", want, record)
		}
	}
	if text := record + h.recorded(t, "output.kept/1/patch/"); strings.Contains(text, "q7Xk2") {
		t.Errorf("the key is in the account: %s", text)
	}
	h.outputOf("bundle")
}

// What the policy refuses ends the task; the patch stays as evidence, and there is
// nothing to act with.
func TestRefusedFlagEndsTheTask(t *testing.T) {
	h := newHouse(t, plants())
	h.task.Spec.Repo.Bundle = h.repository("echo a > a; git add .; git commit -qm base")
	h.plan.plan.Flags = task.FlagRules{task.FlagWorkflow: task.FlagRefuse, task.FlagSecret: task.FlagAllow}
	o := h.through(task.Export, 1)
	if o.State != task.StageFailed || o.Reason != task.PolicyOutput || o.Reason.ExitCode() != 12 || !strings.Contains(o.Text, "(output.flags): workflow; the first: workflow.github .github/workflows/x.yml: ") {
		t.Fatalf("%+v", o)
	}
	if patch := h.outputOf("patch"); patch.Verdict != task.FlagRefuse || patch.Size == 0 || !strings.Contains(h.bytes("patch"), "x.yml") {
		t.Errorf("%+v", patch)
	}
	if h.has("bundle") {
		t.Error("there is a bundle to push")
	}
	// The engine asks again after a crash: the end stays the same.
	if again := h.do(task.Export, 1); again.Reason != task.PolicyOutput {
		t.Errorf("%+v", again)
	}
}

// A task that changes nothing has nothing to look at.
func TestEmptyPatchIsAllowed(t *testing.T) {
	h := newHouse(t, task.Spec{Agent: shell("true")})
	h.task.Spec.Repo.Bundle = h.repository("echo a > a; git add .; git commit -qm base")
	h.work.Judge = nil
	if o := h.through(task.Export, 1); o.State != task.StageSucceeded {
		t.Fatalf("%+v", o)
	}
	if patch := h.outputOf("patch"); patch.Verdict != task.FlagAllow || len(patch.Findings) != 0 || !slices.Equal(patch.Flags, []string{"empty"}) {
		t.Errorf("%+v", patch)
	}
}

// recorded is the record whose key begins so.
func (h *house) recorded(t *testing.T, key string) string {
	t.Helper()
	for k, facts := range h.said {
		if strings.HasPrefix(k, key) {
			return facts
		}
	}
	t.Fatalf("no record %q", key)
	return ""
}
