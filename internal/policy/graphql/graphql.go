package graphql

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/cofferdam/cofferdam/internal/policy/models"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What one request may be at most.
const (
	MaxBody   = 1 << 20
	maxText   = 64 << 10 // of the document
	maxTokens = 20_000
	maxOps    = 8 // each is judged with all the fragments
)

var errOutside = errors.New("the request is not about the repository alone, or it can't be told")

// repositoryName is owner/name as GitHub spells them.
var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)

// ValidRepository says whether text is owner/name.
func ValidRepository(text string) bool {
	_, name, _ := strings.Cut(text, "/")
	return repositoryName.MatchString(text) && name != "." && name != ".."
}

// mutationName is a field of the root of mutations.
var mutationName = regexp.MustCompile(`^[a-z][A-Za-z0-9]{0,63}$`)

// ValidMutation says whether text can be the name of a mutation.
func ValidMutation(text string) bool { return mutationName.MatchString(text) }

// Request is what is looked at.
type Request struct {
	Method, Query string // as sent
	Header        map[string][]string
	Body          []byte
}

// Check says why a request does not pass; nil when it does. The error quotes
// nothing of it.
func Check(rule task.GraphQL, q Request) error {
	owner, name, ok := strings.Cut(rule.Repository, "/")
	if !ok || q.Method != "POST" || q.Query != "" || len(q.Header["Upgrade"]) > 0 || !models.JSON(q.Header) || len(q.Body) > MaxBody {
		return errOutside
	}
	text, variables, err := read(q.Body)
	if err != nil {
		return errOutside
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, maxTokens)
	if err != nil || len(doc.Operations) == 0 || len(doc.Operations) > maxOps {
		return errOutside
	}
	for _, op := range doc.Operations {
		j := judge{
			owner: owner, name: name, mutations: rule.Mutations, variables: variables, operation: op, fragments: map[string]*ast.FragmentDefinition{},
			seen: map[visit]bool{},
		}
		for _, f := range doc.Fragments {
			if j.fragments[f.Name] != nil || len(f.VariableDefinition) > 0 {
				return errOutside
			}
			j.fragments[f.Name] = f
		}
		if !j.whole() {
			return errOutside
		}
	}
	return nil
}

// read takes the document and its variables out of a body.
func read(body []byte) (text string, variables map[string]json.RawMessage, err error) {
	variables = map[string]json.RawMessage{}
	err = models.Object(body, func(key string, value json.RawMessage) error {
		switch key {
		case "query":
			return json.Unmarshal(value, &text)
		case "operationName":
			return nil // all operations are judged
		case "variables":
			if string(value) == "null" {
				return nil
			}
			return models.Object(value, func(key string, value json.RawMessage) error {
				variables[key] = value
				return nil
			})
		}
		return errOutside // such as extensions, which name a stored query
	})
	if err == nil && !plain(text) {
		err = errOutside
	}
	return text, variables, err
}

// plain says whether every reader divides a document alike.
func plain(text string) bool {
	if text == "" || len(text) > maxText || strings.Contains(text, `"""`) || strings.Contains(text, `\u`) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// place is where a selection stands.
type place int

const (
	root place = iota
	within
	behind // a door
)

type visit struct {
	fragment string
	place    place
}

// judge walks one operation.
type judge struct {
	owner, name string
	mutations   []string
	variables   map[string]json.RawMessage
	operation   *ast.OperationDefinition
	fragments   map[string]*ast.FragmentDefinition
	seen        map[visit]bool
}

func (j *judge) whole() bool {
	switch j.operation.Operation {
	case ast.Query, ast.Mutation:
		return j.selections(j.operation.SelectionSet, root)
	case ast.Subscription:
	}
	return false
}

func (j *judge) selections(set ast.SelectionSet, at place) bool {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if !j.field(s, at) {
				return false
			}
		case *ast.InlineFragment:
			if !j.selections(s.SelectionSet, at) {
				return false
			}
		case *ast.FragmentSpread:
			f, v := j.fragments[s.Name], visit{s.Name, at}
			if f == nil {
				return false
			}
			if !j.seen[v] {
				j.seen[v] = true
				if !j.selections(f.SelectionSet, at) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

func (j *judge) field(f *ast.Field, at place) bool {
	switch {
	case at == root && j.operation.Operation == ast.Mutation:
		return f.Name == "__typename" || slices.Contains(j.mutations, f.Name) && j.kept(f) && j.selections(f.SelectionSet, within)
	case at == root:
		switch f.Name {
		case "__typename", "__schema", "__type", "rateLimit": // what everyone may know
			return true
		case "repository":
			return j.ours(f.Arguments) && j.selections(f.SelectionSet, within)
		}
		return false
	case len(f.SelectionSet) == 0:
		return at == within || slices.Contains(shown(), f.Name)
	case f.Name == "node" && len(f.Arguments) > 0:
		return false
	case at == within && slices.Contains(inside(), f.Name):
		return j.selections(f.SelectionSet, within)
	case slices.Contains(doors(), f.Name), slices.Contains([]string{"nodes", "edges", "node", "pageInfo"}, f.Name):
		return j.selections(f.SelectionSet, behind)
	}
	return false
}

// ours says whether the arguments of the field repository name ours.
func (j *judge) ours(arguments ast.ArgumentList) bool {
	owner, name := false, false
	for _, a := range arguments {
		switch {
		case a.Name == "owner" && !owner:
			owner = j.is(a.Value, j.owner)
			if !owner {
				return false
			}
		case a.Name == "name" && !name:
			name = j.is(a.Value, j.name)
			if !name {
				return false
			}
		case a.Name == "followRenames" && a.Value.Kind == ast.BooleanValue:
		default:
			return false
		}
	}
	return owner && name
}

// is says whether a value is the text, as GitHub compares names.
func (j *judge) is(v *ast.Value, text string) bool {
	got, ok := j.text(v)
	return ok && strings.EqualFold(got, text) && plain(got)
}

// text is the text of a value, or of the variable that it names.
func (j *judge) text(v *ast.Value) (string, bool) {
	switch v.Kind {
	case ast.StringValue:
		return v.Raw, true
	case ast.Variable:
		if raw, said := j.variables[v.Raw]; said {
			return jsonText(raw)
		}
		var found *ast.VariableDefinition
		for _, d := range j.operation.VariableDefinitions {
			if d.Variable == v.Raw {
				if found != nil {
					return "", false
				}
				found = d
			}
		}
		if found != nil && found.DefaultValue != nil && found.DefaultValue.Kind == ast.StringValue {
			return found.DefaultValue.Raw, true
		}
	}
	return "", false
}

func jsonText(raw json.RawMessage) (string, bool) {
	var s string
	return s, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
}

// kept says whether a mutation that a rule names is kept to the repository as
// far as that can be told.
func (j *judge) kept(f *ast.Field) bool {
	if f.Name != "createCommitOnBranch" {
		return true
	}
	if len(f.Arguments) != 1 || f.Arguments[0].Name != "input" {
		return false
	}
	branch, ok := j.member(f.Arguments[0].Value, "branch")
	if !ok {
		return false
	}
	named := false
	return branch(func(key, text string, isText bool) bool {
		switch key {
		case "repositoryNameWithOwner":
			named = isText && strings.EqualFold(text, j.owner+"/"+j.name)
			return named
		case "branchName":
			return true
		}
		return false // such as id, which may be of any repository
	}) && named
}

// members calls each with the fields of an object, and their texts.
type members func(each func(key, text string, isText bool) bool) bool

// member finds an object within an input object, be it written out or a variable.
func (j *judge) member(input *ast.Value, name string) (members, bool) {
	switch input.Kind {
	case ast.ObjectValue:
		var found *ast.Value
		for _, c := range input.Children {
			if c.Name == name {
				if found != nil {
					return nil, false
				}
				found = c.Value
			}
		}
		if found == nil {
			return nil, false
		}
		return j.object(found)
	case ast.Variable:
		var found json.RawMessage
		err := models.Object(j.variables[input.Raw], func(key string, value json.RawMessage) error {
			if key == name {
				found = value
			}
			return nil
		})
		return jsonObject(found), err == nil && found != nil
	}
	return nil, false
}

func (j *judge) object(v *ast.Value) (members, bool) {
	switch v.Kind {
	case ast.ObjectValue:
		return func(each func(key, text string, isText bool) bool) bool {
			seen := map[string]bool{}
			for _, c := range v.Children {
				text, ok := j.text(c.Value)
				if seen[c.Name] || !each(c.Name, text, ok) {
					return false
				}
				seen[c.Name] = true
			}
			return true
		}, true
	case ast.Variable:
		return jsonObject(j.variables[v.Raw]), true
	}
	return nil, false
}

func jsonObject(raw json.RawMessage) members {
	return func(each func(key, text string, isText bool) bool) bool {
		return models.Object(raw, func(key string, value json.RawMessage) error {
			if text, ok := jsonText(value); !each(key, text, ok) {
				return errOutside
			}
			return nil
		}) == nil
	}
}
