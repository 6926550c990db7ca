// Package presets has rules by name for what many policies need: registries to
// read, one repository of a forge, one container image.
//
// Words. A preset is a file in data: what it is about, its parameters, its rules
// as a policy would write them with "${parameter}" in their place, and examples of
// requests that must be allowed or refused, which a test asks. To expand is to
// put the parameters in. A rule with "when" is there only for some words of a
// parameter, a field whose whole text is an empty parameter is left out, and so is
// a rule whose host is.
//
// A preset is data and means nothing that its rules don't: what it expands to is
// read as if the policy had it written out. Not promised: that the services
// stay as they are.
package presets

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

//go:embed data/*.yaml
var data embed.FS

// Preset is one file.
type Preset struct {
	Name       string               `yaml:"preset"`
	About      string               `yaml:"about"`
	Parameters map[string]Parameter `yaml:"parameters"`
	Rules      []yaml.Node          `yaml:"rules"`
	Examples   []Example            `yaml:"examples"`
}

// Parameter is what a policy says beside a preset's name.
type Parameter struct {
	Kind     Kind     `yaml:"kind"`
	Words    []string `yaml:"words"` // of the kind word
	Default  string   `yaml:"default"`
	Optional bool     `yaml:"optional"`
	About    string   `yaml:"about"`
}

// Kind is what a parameter's text looks like.
type Kind string

// The kinds.
const (
	KindHost       Kind = "host"       // one host, no pattern
	KindRepository Kind = "repository" // the path of a repository, without .git
	KindGitHub     Kind = "github"     // owner/name
	KindImage      Kind = "image"      // the path of a container image
	KindPath       Kind = "path"       // of a URL
	KindCredential Kind = "credential" // of the vault
	KindWord       Kind = "word"       // one of Words
)

// Example is what becomes of requests under a preset with parameters.
type Example struct {
	With    map[string]string `yaml:"with"`
	Allowed []Request         `yaml:"allowed"`
	Refused []Request         `yaml:"refused"`
}

// Request is "METHOD URL", written as it is sent, alone or as the field request.
type Request struct {
	Line    string            `yaml:"request"`
	Headers map[string]string `yaml:"headers"`
	Body    string            `yaml:"body"`
}

// UnmarshalYAML reads a request that is only a line, too.
func (r *Request) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		r.Line = n.Value
		return nil
	}
	type plain Request
	return n.Decode((*plain)(r))
}

// Names are those of all presets, in order.
func Names() []string {
	files, err := data.ReadDir("data")
	if err != nil {
		return nil // there is no disk that could fail
	}
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Named is the preset of a name.
func Named(name string) (Preset, error) {
	if !slices.Contains(Names(), name) {
		return Preset{}, fmt.Errorf("%q is not a preset; there are %s", name, strings.Join(Names(), ", "))
	}
	text, err := data.ReadFile("data/" + name + ".yaml")
	if err != nil {
		return Preset{}, err
	}
	var p Preset
	err = yaml.Load(text, &p, yaml.WithKnownFields())
	return p, err
}

// patterns are what texts of the kinds look like; hosts and credentials are read
// again as those of any rule are.
func (k Kind) pattern() string {
	switch k {
	case KindHost:
		return `^[A-Za-z0-9._:-]{1,253}$`
	case KindRepository:
		return `^[A-Za-z0-9._-]{1,100}(/[A-Za-z0-9._-]{1,100}){0,9}$`
	case KindGitHub:
		return `^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`
	case KindImage:
		return `^[a-z0-9._-]{1,100}(/[a-z0-9._-]{1,100}){0,9}$`
	case KindPath:
		return `^(/[A-Za-z0-9._-]{1,100}){1,9}$`
	case KindCredential:
		return `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`
	case KindWord:
	}
	return `^$`
}

// fault says what is wrong with a parameter's text.
func (p Parameter) fault(text string) string {
	segments := strings.Split(strings.TrimPrefix(text, "/"), "/")
	switch {
	case p.Kind == KindWord && !slices.Contains(p.Words, text):
		return fmt.Sprintf("%q is not one of %s", text, strings.Join(p.Words, ", "))
	case p.Kind == KindWord:
		return ""
	case !regexp.MustCompile(p.Kind.pattern()).MatchString(text), slices.Contains(segments, "."), slices.Contains(segments, ".."):
		return fmt.Sprintf("%q is not a %s", text, map[Kind]string{
			KindHost: "host name", KindRepository: "path of a repository, such as owner/name", KindGitHub: "repository; write owner/name",
			KindImage: "path of an image, such as library/alpine", KindPath: "path", KindCredential: "name of a credential",
		}[p.Kind])
	case (p.Kind == KindRepository || p.Kind == KindGitHub) && strings.HasSuffix(text, ".git"):
		return "leave .git off"
	}
	return ""
}

// Fault is what is wrong with one parameter.
type Fault struct {
	Parameter string // empty: the preset itself
	Text      string
}

// Expand gives the preset's rules with the parameters put in. What is wrong with
// them is told, and then there are no rules.
func (p Preset) Expand(given map[string]string) ([]*yaml.Node, []Fault) {
	values := map[string]string{}
	var faults []Fault
	for name, text := range given {
		parameter, ok := p.Parameters[name]
		if !ok {
			faults = append(faults, Fault{name, "unknown parameter; preset " + p.Name + " takes " + p.takes()})
		} else if text := parameter.fault(text); text != "" {
			faults = append(faults, Fault{name, text})
		}
		values[name] = text
	}
	for name, parameter := range p.Parameters {
		if _, said := given[name]; said {
			continue
		}
		if values[name] = parameter.Default; parameter.Default == "" && !parameter.Optional {
			faults = append(faults, Fault{name, "is missing; " + strings.TrimSpace("preset "+p.Name+" needs it "+parameter.About)})
		}
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Parameter, b.Parameter) })
		return nil, faults
	}
	var rules []*yaml.Node
	for i := range p.Rules {
		rule, err := put(&p.Rules[i], values)
		if err != nil {
			return nil, []Fault{{"", err.Error()}}
		}
		if rule != nil {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

func (p Preset) takes() string {
	if len(p.Parameters) == 0 {
		return "none"
	}
	names := make([]string, 0, len(p.Parameters))
	for name := range p.Parameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// put puts values into one rule; nil when the rule is not there for them.
func put(rule *yaml.Node, values map[string]string) (*yaml.Node, error) {
	out := *rule
	out.Content = nil
	for i := 0; i+1 < len(rule.Content); i += 2 {
		key, value := rule.Content[i], rule.Content[i+1]
		if key.Value == "when" {
			for j := 0; j+1 < len(value.Content); j += 2 {
				if values[value.Content[j].Value] != value.Content[j+1].Value {
					return nil, nil
				}
			}
			continue
		}
		filled, err := fill(value, values)
		if err != nil {
			return nil, err
		}
		if filled.Kind == yaml.ScalarNode && filled.Value == "" && value.Value != "" {
			if key.Value == "host" {
				return nil, nil
			}
			continue
		}
		out.Content = append(out.Content, key, filled)
	}
	return &out, nil
}

var parameter = regexp.MustCompile(`\$\{([A-Za-z]+)\}`)

// fill puts values into the texts of a node.
func fill(n *yaml.Node, values map[string]string) (*yaml.Node, error) {
	out := *n
	if n.Kind == yaml.ScalarNode {
		for _, m := range parameter.FindAllStringSubmatch(n.Value, -1) {
			if _, ok := values[m[1]]; !ok {
				return nil, errors.New("no parameter " + m[1])
			}
		}
		out.Value = parameter.ReplaceAllStringFunc(n.Value, func(s string) string { return values[s[2:len(s)-1]] })
		return &out, nil
	}
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		var err error
		if out.Content[i], err = fill(c, values); err != nil {
			return nil, err
		}
	}
	return &out, nil
}
