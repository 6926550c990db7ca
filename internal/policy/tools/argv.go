package tools

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxLine bounds a command line that is looked at.
const maxLine = 64 << 10

// Argv takes a shell's command line apart, where it is nothing but one command
// with plain arguments: words, and words in quotes in which nothing is expanded.
// Anything that a shell would act on gives false.
func Argv(line string) ([]string, bool) {
	if len(line) > maxLine {
		return nil, false
	}
	var argv []string
	var word []byte
	begun := false
	end := func() {
		if begun {
			argv = append(argv, string(word))
		}
		word, begun = nil, false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == ' ' || c == '\t':
			end()
		case c == '\'' || c == '"':
			n := strings.IndexByte(line[i+1:], c)
			if n < 0 {
				return nil, false
			}
			text := line[i+1 : i+1+n]
			if !quotable(text, c) {
				return nil, false
			}
			word, begun = append(word, text...), true
			i += n + 1
		case plain(c) && (c != '=' || len(argv) > 0): // no variable is set
			word, begun = append(word, c), true
		default:
			return nil, false
		}
	}
	end()
	return argv, len(argv) > 0 && argv[0] != ""
}

// plain says whether a byte stands for itself outside of quotes.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./:@%+,-=", c) >= 0
}

// quotable says whether a text stands for itself within the quotes.
func quotable(text string, quote byte) bool {
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || quote == '"' && strings.IndexByte("$`\\!", c) >= 0 {
			return false
		}
	}
	return true
}

// Command is what the argv of a use runs: where it is a shell's command line, the
// one command in it, and false where that is not one command with plain
// arguments.
func Command(argv []string) ([]string, bool) {
	for range maxShells {
		if len(argv) != 3 || !isShell(argv[0]) || argv[1] != "-c" && argv[1] != "-lc" {
			return argv, len(argv) > 0
		}
		inner, ok := Argv(argv[2])
		if !ok {
			return nil, false
		}
		argv = inner
	}
	return nil, false
}

// maxShells is how many shells that run each other are looked through.
const maxShells = 3

func isShell(program string) bool {
	dir, name := path.Split(program)
	return slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) && slices.Contains([]string{"", "/bin/", "/usr/bin/"}, dir)
}

// The forms of one argument. None begins with "-", so none is an option, and no
// path leaves the folder that it is in.
var forms = map[string]*regexp.Regexp{
	"{word}":   regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.]*$`),
	"{number}": regexp.MustCompile(`^[0-9]{1,9}$`),
	"{path}":   regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.][A-Za-z0-9_.-]*)*$`),
}

// isForm says whether an element of a rule stands for an argument; ok is false
// for braces that are none.
func isForm(element string) (form, ok bool) {
	if !strings.HasPrefix(element, "{") {
		return false, true
	}
	_, ok = forms[element]
	return ok, ok
}

// matches says whether a command is the rule's, argument by argument.
func matches(rule task.ToolCommand, argv []string) bool {
	if len(rule.Argv) == 0 || len(rule.Argv) != len(argv) {
		return false
	}
	for i, want := range rule.Argv {
		form, ok := forms[want]
		switch {
		case !ok && want != argv[i]:
			return false
		case ok && (!form.MatchString(argv[i]) || want == "{path}" && slices.Contains(strings.Split(argv[i], "/"), "..")):
			return false
		}
	}
	return true
}
