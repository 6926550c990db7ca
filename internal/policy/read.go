package policy

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxFile bounds a policy file; a longer one is a mistake or an attack.
const maxFile = 256 << 10

// MaxRepositoryFile bounds the repository's layer, which a stranger may have
// written.
const MaxRepositoryFile = 64 << 10

// What is told of a file's errors, and of what a repository is not given: who
// wrote the file may be hostile, and what is told is kept.
const (
	maxErrors = 20
	maxError  = 400 // bytes of one
)

// maxRules bounds the rules of one list.
const maxRules = 4096

// reader walks a YAML tree and keeps the first errors, each with line and field.
type reader struct {
	name  string // of the file, for errors
	layer string // whose file it is: a layer of package task
	errs  []string
	wrong int // errors, those that are not kept included
}

// add keeps an error, or counts it.
func (r *reader) add(text string) {
	if r.wrong++; r.wrong <= maxErrors {
		r.errs = append(r.errs, brief(text))
	}
}

// brief cuts a text.
func brief(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}

// first are the first of n texts, and how many more there are.
func first(texts []string, n int) []string {
	kept := texts[:min(len(texts), maxErrors)]
	if more := n - len(kept); more > 0 {
		return append(slices.Clone(kept), fmt.Sprintf("and %d more", more))
	}
	return kept
}

func (r *reader) errorf(n *yaml.Node, field, format string, args ...any) {
	if r.wrong >= maxErrors {
		r.wrong++
		return
	}
	line := 1
	if n != nil {
		line = n.Line
	}
	text := fmt.Sprintf(format, args...)
	if field == "" {
		r.add(fmt.Sprintf("%s line %d: %s", r.name, line, text))
		return
	}
	r.add(fmt.Sprintf("%s line %d: %s: %s", r.name, line, field, text))
}

func (r *reader) err() error {
	if r.wrong == 0 {
		return nil
	}
	return task.Fail(task.InputPolicy, strings.Join(first(r.errs, r.wrong), "; "), nil)
}

// root parses text into its top mapping; nil means an empty file.
func (r *reader) root(text string) *yaml.Node {
	if len(text) > maxFile {
		r.errorf(nil, "", "longer than %d bytes", maxFile)
		return nil
	}
	var doc yaml.Node
	if onlyComments(text) {
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(text))
	if err == nil {
		err = loader.Load(&doc)
	}
	if err != nil {
		r.add(r.name + ": not YAML: " + strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	var more yaml.Node
	if err := loader.Load(&more); !errors.Is(err, io.EOF) {
		r.errorf(&more, "", "a second document; a policy is one")
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	if err := r.plain(&doc); err != nil {
		return nil
	}
	return doc.Content[0]
}

// plain refuses what makes a document mean more than it shows: anchors,
// aliases, merge keys and custom tags.
func (r *reader) plain(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.errorf(n, "", "anchors and aliases are not allowed; write the value out")
		return r.err()
	}
	if n.Tag != "" && !slices.Contains([]string{"!!map", "!!seq", "!!str", "!!int", "!!float", "!!bool", "!!null"}, n.Tag) {
		r.errorf(n, "", "the tag %s is not allowed; remove it, or put what is read as one in quotes", n.Tag)
		return r.err()
	}
	for _, c := range n.Content {
		if err := r.plain(c); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a mapping with known keys only.
func (r *reader) fields(n *yaml.Node, path string, known map[string]func(n *yaml.Node, path string)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.errorf(n, path, "must be a mapping of %s", names(known))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		read, ok := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			r.errorf(key, at, "unknown field; known here: %s", names(known))
		case seen[key.Value]:
			r.errorf(key, at, "given twice; remove one")
		default:
			seen[key.Value] = true
			read(value, at)
		}
	}
}

func (r *reader) list(n *yaml.Node, path string, each func(n *yaml.Node, path string)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.errorf(n, path, "must be a list")
		return
	}
	for i, c := range n.Content {
		each(c, fmt.Sprintf("%s[%d]", path, i))
	}
}

// text reads a scalar that is a string.
func (r *reader) text(n *yaml.Node, path string, most int) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" || len(n.Value) > most || strings.ContainsRune(n.Value, 0) {
		r.errorf(n, path, "must be a text of 1 to %d bytes without NUL; put it in quotes", most)
		return ""
	}
	return n.Value
}

// flag reads true or false.
func (r *reader) flag(n *yaml.Node, path string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.errorf(n, path, "must be true or false")
	}
	return n.Value == "true"
}

// oneOf reads one of a few words.
func (r *reader) oneOf(n *yaml.Node, path string, words ...string) string {
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, n.Value) {
		r.errorf(n, path, "%q is not one of %s", n.Value, strings.Join(words, ", "))
		return ""
	}
	return n.Value
}

func (r *reader) version(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode || n.Value != "1" {
		r.errorf(n, path, "must be 1")
	}
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func names(known map[string]func(*yaml.Node, string)) string {
	list := make([]string, 0, len(known))
	for name := range known {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func onlyComments(text string) bool {
	for line := range strings.Lines(text) {
		if l := strings.TrimSpace(line); l != "" && !strings.HasPrefix(l, "#") && l != "---" {
			return false
		}
	}
	return true
}
