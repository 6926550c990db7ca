package tools

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Bounds of what a file says.
const (
	maxNames    = 256
	maxCommands = 256
	maxArgs     = 64
	maxArg      = 4096
	maxName     = 128
	// Wait is how long a person has when nobody says so, Most is the most.
	Wait = time.Hour
	Most = 24 * time.Hour
)

// Said is what one file says of tools.
type Said struct {
	task.ToolRules
	Wait  time.Duration // 0: nothing said
	Line  int
	Lines map[string]int // of names, by name
}

// Fault is something wrong in a file.
type Fault func(n *yaml.Node, field, format string, args ...any)

// Parse reads the node of "tools".
func Parse(n *yaml.Node, path string, fault Fault) *Said {
	s := &Said{ToolRules: task.ToolRules{Default: task.ToolAsked, Names: map[string]task.ToolVerdict{}}, Line: n.Line, Lines: map[string]int{}}
	if n.Kind != yaml.MappingNode {
		fault(n, path, "must be a mapping of allow, ask, commands, default, refuse, wait")
		return s
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "." + key.Value
		if seen[key.Value] {
			fault(key, at, "given twice; remove one")
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case "default":
			s.byDefault(value, at, fault)
		case "wait":
			s.wait(value, at, fault)
		case "allow":
			s.names(value, at, task.ToolAllowed, fault)
		case "ask":
			s.names(value, at, task.ToolAsked, fault)
		case "refuse":
			s.names(value, at, task.ToolRefused, fault)
		case "commands":
			s.commands(value, at, fault)
		default:
			fault(key, at, "unknown field; known here: allow, ask, commands, default, refuse, wait")
		}
	}
	return s
}

func (s *Said) byDefault(n *yaml.Node, path string, fault Fault) {
	switch n.Value {
	case "ask":
		s.Default = task.ToolAsked
	case "refuse":
		s.Default = task.ToolRefused
	case "allow":
		fault(n, path, "allows tools that nobody named, which may run any program; write ask or refuse and list what is allowed, or leave tools out")
	default:
		fault(n, path, "%.40q is not one of ask, refuse", n.Value)
	}
}

func (s *Said) wait(n *yaml.Node, path string, fault Fault) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < time.Second || d > Most {
		fault(n, path, "must be between 1s and %s, such as 30m", Most)
		return
	}
	s.Wait = d
}

// toolName is how a tool may be called.
var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:/-]*$`)

func (s *Said) names(n *yaml.Node, path string, v task.ToolVerdict, fault Fault) {
	for i, c := range list(n, path, fault) {
		at := fmt.Sprintf("%s[%d]", path, i)
		name := c.Value
		_, twice := s.Names[name]
		switch {
		case c.Kind != yaml.ScalarNode || len(name) > maxName || !toolName.MatchString(name):
			fault(c, at, "must be the name of a tool, or one of %s", kinds())
		case twice:
			fault(c, at, "%s is named twice (line %d); remove one", name, s.Lines[name])
		case len(s.Names) >= maxNames:
			fault(c, at, "more than %d names", maxNames)
			return
		case v == task.ToolAllowed && name != string(task.ToolShell) && runTool(name):
			fault(c, at, "%s runs programs or other agents, whatever its name: it can't be allowed by it; write the whole commands under commands, or let it be asked", name)
		case v == task.ToolAllowed && name == string(task.ToolShell):
			fault(c, at, "shell runs any program: it can't be allowed by its name; write the whole commands under commands, such as - [go, test, ./...], or let it be asked")
		case v == task.ToolAllowed && runner(name) && !slices.Contains(task.ToolKinds(), task.ToolKind(name)):
			fault(c, at, "%s is a program that can run others: it can't be allowed by its name; write the whole commands under commands, such as - [%s, ...]", name, name)
		default:
			s.Names[name], s.Lines[name] = v, c.Line
		}
	}
}

func (s *Said) commands(n *yaml.Node, path string, fault Fault) {
	for i, c := range list(n, path, fault) {
		at := fmt.Sprintf("%s[%d]", path, i)
		if len(s.Commands) >= maxCommands {
			fault(c, at, "more than %d commands", maxCommands)
			return
		}
		if c.Kind == yaml.ScalarNode {
			fault(c, at, "must be a list of the whole command's arguments, such as [go, test, ./...]: a text could mean several commands to a shell")
			continue
		}
		argv, ok := arguments(c, at, fault)
		if !ok {
			continue
		}
		hole := slices.ContainsFunc(argv, func(a string) bool { form, _ := isForm(a); return form })
		switch {
		case runner(argv[0]) && len(argv) == 1:
			fault(c, at, "%s can run other programs, by its arguments or by what it reads: its name alone is not allowed; write the whole command, such as [%s, test], or let it be asked", argv[0], argv[0])
		case runner(argv[0]) && hole:
			fault(c, at, "%s can run other programs by its arguments: it is allowed only with all of them written out; write the argument in place of the braces", argv[0])
		default:
			s.Commands = append(s.Commands, task.ToolCommand{Argv: argv, Line: c.Line})
		}
	}
}

// arguments are the elements of one command.
func arguments(n *yaml.Node, path string, fault Fault) ([]string, bool) {
	all := list(n, path, fault)
	if len(all) == 0 || len(all) > maxArgs {
		fault(n, path, "must have 1 to %d arguments", maxArgs)
		return nil, false
	}
	var argv []string
	for j, a := range all {
		at := fmt.Sprintf("%s[%d]", path, j)
		_, ok := isForm(a.Value)
		switch {
		case a.Kind != yaml.ScalarNode || a.Tag == "!!null" || len(a.Value) > maxArg || strings.ContainsRune(a.Value, 0):
			fault(a, at, "must be a text of at most %d bytes; put it in quotes", maxArg)
			return nil, false
		case j == 0 && (a.Value == "" || strings.ContainsAny(a.Value, "{}*?[]=~$ ")):
			fault(a, at, "must be one program's name or path, without patterns")
			return nil, false
		case !ok:
			fault(a, at, "%.60q is no form of an argument; there are {word}, {path} and {number}", a.Value)
			return nil, false
		case len(all) > 1 && (a.Value == "*" || a.Value == "**" || a.Value == "..."):
			fault(a, at, "there is no pattern for any argument; write the arguments out, or use {word}, {path} or {number}")
			return nil, false
		}
		argv = append(argv, a.Value)
	}
	return argv, true
}

func list(n *yaml.Node, path string, fault Fault) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		fault(n, path, "must be a list")
		return nil
	}
	return n.Content
}

func kinds() string {
	var words []string
	for _, k := range task.ToolKinds() {
		words = append(words, string(k))
	}
	return strings.Join(words, ", ")
}

// Row is one line for who wants to know what a file says.
type Row struct {
	Field, Text, Note string
	Layer             string // empty: nobody said it
	Line              int
}

// rows tells what a file says of tools.
func (s *Said) rows() []Row {
	rows := []Row{{Field: "default", Text: s.Default.String(), Line: s.Line, Note: "of tools that nothing names; the strictest layer counts"}}
	for _, name := range slices.Sorted(maps.Keys(s.Names)) {
		rows = append(rows, Row{Field: s.Names[name].String(), Text: name, Line: s.Lines[name]})
	}
	for _, c := range s.Commands {
		r := Row{Field: "commands", Text: "allow " + quoted(c.Argv), Line: c.Line, Note: "argument by argument; anything that a shell would act on is not this command"}
		if runner(c.Argv[0]) {
			r.Note += "; " + c.Argv[0] + " can run what its settings or the workspace say"
		}
		rows = append(rows, r)
	}
	return rows
}

// quoted shows each argument where it begins and ends.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = fmt.Sprintf("%q", a)
	}
	return strings.Join(words, " ")
}
