package task_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestFileRulesCheck(t *testing.T) {
	for name, c := range map[string]struct {
		rules task.FileRules
		want  string // part of the error; empty: none
	}{
		"zero":         {task.FileRules{}, ""},
		"good":         {task.FileRules{Writable: []string{".claude"}, ReadOnly: []string{"a/b"}, Hidden: []string{"secret"}}, ""},
		"absolute":     {task.FileRules{ReadOnly: []string{"/etc"}}, "files.readOnly"},
		"parent":       {task.FileRules{Hidden: []string{"../x"}}, "files.hidden"},
		"inner parent": {task.FileRules{Hidden: []string{"a/../x"}}, "not clean"},
		"slash":        {task.FileRules{Writable: []string{"a/"}}, "not clean"},
		"whole":        {task.FileRules{Writable: []string{"."}}, "whole workspace"},
		"pattern":      {task.FileRules{Writable: []string{"*.go"}}, "pattern"},
		"control":      {task.FileRules{Writable: []string{"a\nb"}}, "control"},
		"twice":        {task.FileRules{Writable: []string{"a"}, Hidden: []string{"a"}}, "too"},
		"long":         {task.FileRules{Writable: []string{strings.Repeat("a", 1025)}}, "longer"},
		"deep":         {task.FileRules{Writable: []string{strings.Repeat("a/", 40) + "a"}}, "names"},
		"not UTF-8":    {task.FileRules{Writable: []string{"a\xff"}}, "UTF-8"},
		"too many":     {task.FileRules{Writable: many(300)}, "the most is"},
	} {
		err := c.rules.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func many(n int) []string {
	var list []string
	for i := range n {
		list = append(list, strings.Repeat("a", i+1))
	}
	return list
}

func TestFileAccess(t *testing.T) {
	rules := task.FileRules{
		Writable: []string{".claude/commands", ".vscode", "docs/draft"},
		ReadOnly: []string{"docs"}, Hidden: []string{"keys", ".idea"},
	}
	for name, want := range map[string]task.Access{
		"main.go": task.AccessWritable, "docs/a": task.AccessReadOnly, "docs": task.AccessReadOnly, "docs2": task.AccessWritable,
		"docs/draft/x": task.AccessWritable, "keys/a/b": task.AccessHidden, ".idea": task.AccessHidden,
		".claude/settings.json": task.AccessReadOnly, ".claude/commands/x": task.AccessWritable, ".vscode/tasks.json": task.AccessWritable,
		".git/config": task.AccessReadOnly, ".git/index": task.AccessWritable, ".git/hooks/pre-commit": task.AccessReadOnly,
		".CLAUDE/settings.json": task.AccessReadOnly, ".claude. /x": task.AccessReadOnly, ".cla\u200dude/x": task.AccessReadOnly,
		".Mcp.json": task.AccessReadOnly, ".mcp.json:stream": task.AccessReadOnly, ".gitAttributes": task.AccessReadOnly,
		"CLAUDE~1/settings.json": task.AccessReadOnly, "gitatt~1": task.AccessReadOnly, "GITMOD~2": task.AccessReadOnly, "MCP~1.JSO": task.AccessReadOnly,
		"OPENCO~1.JSO": task.AccessReadOnly, "AIDERC~1.YML": task.AccessReadOnly, "DEVCO~12/x": task.AccessReadOnly, "keys~1/a": task.AccessHidden,
		"GIT~1/config": task.AccessReadOnly, "CLAUDE~": task.AccessWritable, "CLAUDE~x": task.AccessWritable, "backup~1": task.AccessWritable, "MCP~1.TXT": task.AccessWritable,
		"claude~123456789": task.AccessWritable, "~1": task.AccessWritable,
		"sub/.claude/settings.json": task.AccessWritable, "//.claude//x": task.AccessReadOnly,
	} {
		if got := rules.Access(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	if got := (task.FileRules{}).Access(".envrc"); got != task.AccessReadOnly {
		t.Errorf("the zero value makes .envrc %s", got)
	}
}

func TestFileWidening(t *testing.T) {
	if got := (task.FileRules{ReadOnly: []string{"docs"}}).Widened(); len(got) != 0 {
		t.Errorf("nothing was widened, but %q", got)
	}
	got := task.FileRules{Writable: []string{".git", ".claude/commands", "src"}}.Widened()
	want := []string{".claude/commands", ".git/config", ".git/config.worktree", ".git/hooks", ".git/info/attributes"}
	if !slices.Equal(got, want) {
		t.Errorf("widened %q, want %q", got, want)
	}
	for _, r := range (task.FileRules{Writable: []string{".git"}}).Effective() {
		if strings.HasPrefix(r.Path, ".git/") {
			t.Errorf("%s is left though .git was made writable", r.Path)
		}
	}
}
