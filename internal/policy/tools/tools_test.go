package tools

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// read reads the node of "tools" and gives what was wrong with it.
func read(t testing.TB, text string) (*Said, []string) {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return nil, []string{fmt.Sprint(err)}
	}
	var faults []string
	s := Parse(doc.Content[0], "agent.tools", func(n *yaml.Node, field, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("line %d: %s: %s", n.Line, field, fmt.Sprintf(format, args...)))
	})
	return s, faults
}

func policy(t *testing.T, texts ...string) *Policy {
	t.Helper()
	var said []Layered
	for i, text := range texts {
		s, faults := read(t, text)
		if faults != nil {
			t.Fatalf("%s: %v", text, faults)
		}
		said = append(said, Layered{Said: s, Layer: fmt.Sprintf("layer-%d", i), Field: "agent.tools"})
	}
	return &Policy{Tools: *Sum(said, false)}
}

func shell(line string) task.ToolAsk {
	return task.ToolAsk{Tool: "shell", Kind: task.ToolShell, Argv: []string{"bash", "-c", line}}
}

// A zero policy, and what no layer names, refuses or is asked.
func TestZero(t *testing.T) {
	if v := (&Policy{}).Decide(task.ToolAsk{Tool: "read", Kind: task.ToolRead}).Verdict; v != task.ToolRefused {
		t.Errorf("%s", v)
	}
	if v := (task.ToolVerdict("everything")); v.Rank() != 0 || v.String() != "refuse" {
		t.Errorf("a verdict of a newer program: %s", v)
	}
}

// cases of B17: none is allowed by a rule that names its program.
func programsInPrograms() []string {
	return []string{
		`find . -exec sh -c id \;`, `rg --pre ./p x`, `fd -x ./p`, `git -c core.pager=./p log`, `git show --output=/x`, `git diff --output=x`, `go test -exec ./p`, `sed -n '1e id'`,
		`tar --checkpoint=1 --checkpoint-action=exec=id`, `tar --to-command=id`, `env PAGER=./p git log`, `LD_PRELOAD=./x true`, `man -P ./p`, `xargs ./p`, `awk 'BEGIN{system("id")}'`,
		`ssh -oProxyCommand=id x`, `make SHELL=./p`, `npm run x`, `pip install x`, `python3.12 -c x`, `javac -version -processorpath x`, `timeout 9 id`, `busybox sh`, `/usr/bin/env id`, `node -e x`,
	}
}

func TestNothingThatRunsProgramsIsAllowedByName(t *testing.T) {
	for _, line := range programsInPrograms() {
		name, _, _ := strings.Cut(line, " ")
		for _, rule := range []string{
			"allow: [" + name + "]", "commands: [[" + name + "]]", "commands: [" + name + "]", `commands: [[` + name + `, "*"]]`, `commands: [[` + name + `, "{word}"]]`,
			`commands: [[` + name + `, -x, "{path}"]]`, `commands: ["` + name + ` {path}"]`, `commands: [[` + name + `, "..."]]`, `commands: [[` + name + `, "{rest}"]]`,
		} {
			if _, faults := read(t, "default: refuse\n"+rule); len(faults) == 0 || !strings.HasPrefix(faults[0], "line 2: agent.tools.") {
				t.Errorf("%s: taken, or not told where: %v", rule, faults)
			}
		}
		// Rules about other commands say nothing of it.
		p := policy(t, "default: ask\nallow: [read, search, edit, write]\ncommands: [[go, test, ./...], [git, status], [ls, \"{path}\"], [make, test], [npm, test]]")
		if d := p.Decide(shell(line)); d.Verdict != task.ToolAsked {
			t.Errorf("%s: %+v", line, d)
		}
	}
	for _, tool := range []string{"shell", "Bash", "execute", "run_shell_command", "Task", "Skill"} {
		if _, faults := read(t, "allow: ["+tool+"]"); len(faults) != 1 || !strings.Contains(faults[0], "commands") {
			t.Errorf("%s: %v", tool, faults)
		}
	}
	if _, faults := read(t, "default: allow"); len(faults) != 1 {
		t.Errorf("everything is allowed: %v", faults)
	}
}

func TestDecide(t *testing.T) {
	const file = "default: refuse\nallow: [read, search, TodoWrite]\nask: [shell, edit]\ncommands:\n- [go, test, ./...]\n- [./check.sh]\n- [cat, \"{path}\"]\n- [head, -n, \"{number}\", \"{path}\"]\n- [git, status, --short]\n- [echo, \"it's fine\"]\n"
	p := policy(t, file)
	for name, c := range map[string]struct {
		use  task.ToolAsk
		want task.ToolVerdict
	}{
		"by its kind":                  {task.ToolAsk{Tool: "Grep", Kind: task.ToolSearch}, task.ToolAllowed},
		"by its own name":              {task.ToolAsk{Tool: "TodoWrite"}, task.ToolAllowed},
		"asked":                        {task.ToolAsk{Tool: "Edit", Kind: task.ToolEdit}, task.ToolAsked},
		"nothing names it":             {task.ToolAsk{Tool: "WebFetch", Kind: task.ToolFetch}, task.ToolRefused},
		"a name that is a kind":        {task.ToolAsk{Tool: "read", Kind: task.ToolFetch}, task.ToolRefused},
		"runs and calls itself search": {task.ToolAsk{Tool: "search", Kind: task.ToolSearch, Argv: []string{"id"}}, task.ToolAsked},
		"runs under a known name":      {task.ToolAsk{Tool: "Bash", Kind: task.ToolRead}, task.ToolAsked},
		"the command":                  {shell("go test ./..."), task.ToolAllowed},
		"without a shell":              {task.ToolAsk{Tool: "shell", Kind: task.ToolShell, Argv: []string{"go", "test", "./..."}}, task.ToolAllowed},
		"a login shell":                {task.ToolAsk{Tool: "shell", Kind: task.ToolShell, Argv: []string{"/bin/bash", "-lc", "go test ./..."}}, task.ToolAllowed},
		"a shell in a shell":           {shell(`/bin/bash -lc 'go test ./...'`), task.ToolAllowed},
		"something in a shell":         {shell(`/bin/bash -lc 'go test ./...; id'`), task.ToolAsked},
		"another shell":                {task.ToolAsk{Tool: "shell", Kind: task.ToolShell, Argv: []string{"./bash", "-c", "go test ./..."}}, task.ToolAsked},
		"spaces":                       {shell("  go\ttest   ./... "), task.ToolAllowed},
		"quotes":                       {shell(`go 'test' "./..."`), task.ToolAllowed},
		"a quote in quotes":            {shell(`echo "it's fine"`), task.ToolAllowed},
		"more":                         {shell("go test ./... -exec ./p"), task.ToolAsked},
		"less":                         {shell("go test"), task.ToolAsked},
		"one program":                  {shell("./check.sh"), task.ToolAllowed},
		"elsewhere":                    {shell("x/../check.sh"), task.ToolAsked},
		"a path":                       {shell("cat src/a.go"), task.ToolAllowed},
		"up and out":                   {shell("cat src/../../x"), task.ToolAsked},
		"absolute":                     {shell("cat /etc/shadow"), task.ToolAsked},
		"an option for a path":         {shell("cat --help"), task.ToolAsked},
		"quoted, with a space":         {shell("cat 'a b'"), task.ToolAsked},
		"a number":                     {shell("head -n 20 a"), task.ToolAllowed},
		"no number":                    {shell("head -n -0x2 a"), task.ToolAsked},
	} {
		if d := p.Decide(c.use); d.Verdict != c.want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, tail := range []string{";id", "&&id", "&", "|id", "\nid", "`id`", "$(id)", "${x}", ">x", "<x", "*", "?", "[a]", "~", "#x", "\\", "{a,b}", "!", "^a", "(a)", "\x00", "\r", " \u202e", "é", "\"$x\"", "'", "\""} {
		if d := p.Decide(shell("go test ./..." + tail)); d.Verdict != task.ToolAsked {
			t.Errorf("%q: %+v", tail, d)
		}
	}
	for _, head := range []string{"A=b ", "A=b;", "! ", "{ ", "( ", "~/", "$x "} {
		if d := p.Decide(shell(head + "go test ./...")); d.Verdict != task.ToolAsked {
			t.Errorf("%q: %+v", head, d)
		}
	}
}

// Whatever a lower layer says, it lets through no more than the layers above.
func TestLayersNarrow(t *testing.T) {
	files := []string{
		"default: refuse", "default: ask", "default: refuse\nallow: [read, search]\nask: [shell]", "default: ask\nallow: [read, edit]\nrefuse: [shell]",
		"default: refuse\nask: [edit]\ncommands: [[make, test]]", "refuse: [shell]\ncommands: [[make, test]]", "allow: [search, WebFetch]\nrefuse: [fetch]",
	}
	uses := []task.ToolAsk{shell("make test"), shell("id"), {Tool: "Read", Kind: task.ToolRead}, {Tool: "Edit", Kind: task.ToolEdit}, {Tool: "WebFetch", Kind: task.ToolFetch}, {Tool: "x"}}
	for _, upper := range files {
		for _, lower := range files {
			both, one, other := policy(t, upper, lower), policy(t, upper), policy(t, lower)
			for _, use := range uses {
				got, a, b := both.Decide(use), one.Decide(use), other.Decide(use)
				if got.Verdict.Rank() != min(a.Verdict.Rank(), b.Verdict.Rank()) {
					t.Errorf("%q over %q: %v: %v, alone %v and %v", upper, lower, use, got, a, b)
				}
				if a.Verdict.Rank() <= b.Verdict.Rank() && got.Layer != "layer-0" {
					t.Errorf("%q over %q: %v is said to be of %s", upper, lower, use, got.Layer)
				}
			}
		}
	}
	if p := policy(t, "wait: 5m", "wait: 2h"); p.Wait.Minutes() != 5 {
		t.Errorf("waits %s", p.Wait)
	}
}

func TestWrongFiles(t *testing.T) {
	for text, want := range map[string]string{
		"[read]":                                 "must be a mapping",
		"defaults: ask":                          "unknown field",
		"default: sometimes":                     `"sometimes" is not one of ask, refuse`,
		"ask: [read]\nask: [edit]":               "given twice",
		"ask: [read]\nallow: [read]":             "read is named twice (line 1)",
		"ask: read":                              "must be a list",
		"ask: [\"a b\"]":                         "must be the name of a tool",
		"ask: [\"\\e[2J\"]":                      "must be the name of a tool",
		"wait: 25h":                              "between 1s and 24h",
		"wait: soon":                             "between 1s and 24h",
		"commands: [[]]":                         "1 to 64 arguments",
		"commands: [[\"ls -l\"]]":                "one program's name",
		"commands: [[\"A=b\", ls]]":              "one program's name",
		"commands: [[ls, {a: b}]]":               "must be a text",
		"commands: [[ls, \"{anything}\"]]":       "there are {word}, {path} and {number}",
		"commands: [[\"{path}\"]]":               "one program's name",
		"commands: [[ls, \"*\"]]":                "no pattern for any argument",
		"allow: [python3]":                       "python3 is a program that can run others",
		"commands: [[\"/usr/bin/git\"]]":         "its name alone is not allowed",
		"commands: [[git, log, -n, \"{word}\"]]": "with all of them written out",
	} {
		_, faults := read(t, text)
		if len(faults) == 0 || !strings.Contains(strings.Join(faults, "; "), want) {
			t.Errorf("%q: %v, want %s", text, faults, want)
		}
	}
	s, faults := read(t, "wait: 30m\nrefuse: [mcp__x__y]\ncommands: [[git, log, --oneline]]")
	if faults != nil {
		t.Fatal(faults)
	}
	var fields []string
	for _, r := range Explain([]Layered{{s, "task", "agent.tools"}}, Sum([]Layered{{s, "task", "agent.tools"}}, true)) {
		fields = append(fields, r.Field+"="+r.Text+"@"+r.Layer)
	}
	if want := []string{"agent.tools.default=ask@task", "agent.tools.refuse=mcp__x__y@task", `agent.tools.commands=allow "git" "log" "--oneline"@task`, "agent.tools.wait=30m0s@task"}; !slices.Equal(fields, want) {
		t.Errorf("%q", fields)
	}
}

// What is taken apart is, put together in quotes, the same command again; and
// nothing of it is what a shell acts on.
func FuzzArgv(f *testing.F) {
	for _, line := range append(programsInPrograms(), "go test ./...", `echo 'a b' "c"d`, "a=b c", "'' x", "x ''", "a\\\nb") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		argv, ok := Argv(line)
		if !ok {
			if argv != nil && argv[0] != "" {
				t.Fatalf("%q is no command and gave %q", line, argv)
			}
			return
		}
		var quoted []string
		for _, a := range argv {
			for i := range len(a) {
				if a[i] < ' ' || a[i] > '~' {
					t.Fatalf("%q gave %q", line, argv)
				}
			}
			if strings.Contains(a, "'") {
				if strings.ContainsAny(a, "\"$`\\!") {
					return // of a word that is quoted in both ways
				}
				quoted = append(quoted, `"`+a+`"`)
				continue
			}
			quoted = append(quoted, "'"+a+"'")
		}
		if again, ok := Argv(strings.Join(quoted, " ")); !ok || !slices.Equal(again, argv) {
			t.Fatalf("%q gave %q, and that %q", line, argv, again)
		}
	})
}
