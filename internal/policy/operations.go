package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/graphql"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/models"
	"github.com/cofferdam/cofferdam/internal/task"
)

// matches reads a list of matchers; fault says what is wrong with one.
func (r *reader) matches(n *yaml.Node, path string, fault func(task.Match) string) []task.Match {
	var list []task.Match
	r.list(n, path, func(n *yaml.Node, path string) {
		before := r.wrong
		var m task.Match
		var kinds []string
		kind := func(kind string) func(*yaml.Node, string) {
			return func(n *yaml.Node, p string) {
				m.Kind, kinds = kind, append(kinds, kind)
				switch {
				case kind == task.MatchAbsent:
					if !r.flag(n, p) {
						r.errorf(n, p, "must be true, or left out")
					}
				case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
					r.errorf(n, p, "must be a text")
				default:
					m.Value = n.Value
				}
			}
		}
		r.fields(n, path, fieldReaders{
			"name":   func(n *yaml.Node, p string) { m.Name = r.text(n, p, 64) },
			"exact":  kind(task.MatchExact),
			"prefix": kind(task.MatchPrefix),
			"re2":    kind(task.MatchRE2),
			"absent": kind(task.MatchAbsent),
		})
		if r.wrong > before {
			return
		}
		if len(kinds) != 1 {
			r.errorf(n, path, "needs name and exactly one of exact, prefix, re2, absent: true")
		} else if text := fault(m); text != "" {
			r.errorf(n, path, "%s", text)
		} else {
			list = append(list, m)
		}
	})
	r.notEmpty(n, path, "name a matcher or leave it out")
	if len(n.Content) > match.MaxList {
		r.errorf(n, path, "more than %d matchers", match.MaxList)
	} else if text := match.Contradiction(list); text != "" {
		r.errorf(n, path, "%s", text)
	}
	return list
}

func (r *reader) body(n *yaml.Node, path string) *task.Body {
	before := r.wrong
	b := &task.Body{}
	r.fields(n, path, fieldReaders{
		"models":  func(n *yaml.Node, p string) { b.Models = r.models(n, p) },
		"graphql": func(n *yaml.Node, p string) { b.GraphQL = r.graphql(n, p) },
	})
	if r.wrong == before && (b.GraphQL == nil) == (len(b.Models) == 0) {
		r.errorf(n, path, "needs exactly one of models and graphql")
	}
	return b
}

// models reads a list of models' names.
func (r *reader) models(n *yaml.Node, path string) []string {
	list := []string{}
	r.list(n, path, func(n *yaml.Node, path string) {
		switch {
		case n.Kind != yaml.ScalarNode || !models.Valid(n.Value):
			r.errorf(n, path, "%q is not the name of a model; \"*\" stands for any run of characters", n.Value)
		case slices.Contains(list, n.Value):
			r.errorf(n, path, "%s is given twice; remove one", n.Value)
		default:
			list = append(list, n.Value)
		}
	})
	r.notEmpty(n, path, "name a model")
	return list
}

func (r *reader) graphql(n *yaml.Node, path string) *task.GraphQL {
	g := &task.GraphQL{}
	r.fields(n, path, fieldReaders{
		"repository": func(n *yaml.Node, p string) {
			if g.Repository = n.Value; n.Kind != yaml.ScalarNode || !graphql.ValidRepository(n.Value) {
				r.errorf(n, p, "%q is not owner/name", n.Value)
			}
		},
		"mutations": func(n *yaml.Node, p string) {
			if n.Tag == "!!bool" && n.Value == "false" {
				return
			}
			r.list(n, p, func(n *yaml.Node, p string) {
				if n.Kind != yaml.ScalarNode || !graphql.ValidMutation(n.Value) {
					r.errorf(n, p, "%q is not the name of a mutation, such as createCommitOnBranch", n.Value)
				}
				g.Mutations = append(g.Mutations, n.Value)
			})
			r.notEmpty(n, p, "name mutations, or write false")
		},
	})
	r.needs(n, path, "repository")
	return g
}

// operation checks what a rule says of requests as a whole.
func (r *reader) operation(n *yaml.Node, path string, rule task.Rule) {
	if rule.Body != nil && len(rule.Methods) > 0 && !slices.Contains(rule.Methods, "POST") {
		r.errorf(n, join(path, "methods"), "can't match: what body is about is sent by POST; add it, or leave methods out")
	}
}

// bodyText tells what a body must be.
func bodyText(b *task.Body) string {
	switch {
	case b == nil:
		return ""
	case b.GraphQL != nil:
		text := "GraphQL of " + b.GraphQL.Repository
		if len(b.GraphQL.Mutations) > 0 {
			text += " with " + strings.Join(b.GraphQL.Mutations, ",")
		}
		return text
	}
	return fmt.Sprintf("models %s", strings.Join(b.Models, ","))
}
