package policy

import (
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/access"
	"github.com/cofferdam/cofferdam/internal/policy/example"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/tools"
	"github.com/cofferdam/cofferdam/internal/policy/vercel"
	"github.com/cofferdam/cofferdam/internal/policy/verdicts"
	"github.com/cofferdam/cofferdam/internal/policy/verifying"
	"github.com/cofferdam/cofferdam/internal/task"
)

// file is what one layer says. The zero file says nothing.
type file struct {
	name  string // for people: "policy", "operator policy", …
	layer string
	form  string // whose form it has; empty: ours

	limits   limits
	network  map[task.StageName][]lined // present: the layer says what the stage reaches, be it nothing
	time     map[task.StageName]lasting
	unknown  map[task.StageName]unknownRule // present: the layer says what becomes of what no rule matches
	wait     map[task.StageName]lasting     // for an answer
	identity map[task.StageName][]identity  // present: the layer says for whom the stage has tokens of its run
	files    fileRules
	models   modelList // of the agent
	verify   verifying.Said
	access   access.Said
	tools    *tools.Said
	flags    *verdicts.Said // of findings in the patch
	sudo     *bool
	sudoLine int
	checkout string // the credential that the checkout of a URL is lent
	examples []example.Example

	ceiling  ceiling     // operator and project
	ask      *mayAsk     // operator and project: what repositories may ask for; nil: nothing
	private  []lined     // operator
	defaults limits      // operator
	work     *repository // repository
}

type lasting struct {
	time.Duration
	line int
}

// ceiling is what a layer lets the layers below it ask for at most. The zero
// ceiling bounds nothing.
type ceiling struct {
	limits      limits
	all         []lined                    // nil: no bound
	stages      map[task.StageName][]lined // absent: no bound
	credentials []string                   // nil: no bound
	models      modelList                  // no names: no bound
	widen       []string                   // nil: all of task.ProtectedFiles
	unknown     *unknownRule               // nil: no bound of this layer
	adminsOnly  bool                       // the requester may not answer what is asked
	tools       *tools.Said                // nil: no bound
	identity    []identity                 // nil: of the operator, nobody has any; of a project, no bound
	noSplice    bool
	noSudo      bool
	flakyFails  bool
	line        int // of the ceiling
}

// mayAsk is what a layer lets a repository ask for.
type mayAsk struct {
	network  []lined
	commands bool
}

// repository is what a repository says about the work on it.
type repository struct {
	task.RepositoryAsk
	line int // of the first of it
}

// stages that have a policy.
func stages() []task.StageName {
	return []task.StageName{task.Checkout, task.Setup, task.Agent, task.Verify}
}

type fieldReaders = map[string]func(*yaml.Node, string)

// parse reads a layer's text with the fields that the layer has.
func parse(r *reader, text string, fields func(r *reader, f *file) fieldReaders) (file, error) {
	f := file{
		name: r.name, layer: r.layer,
		network: map[task.StageName][]lined{}, time: map[task.StageName]lasting{},
		unknown: map[task.StageName]unknownRule{}, wait: map[task.StageName]lasting{}, identity: map[task.StageName][]identity{}, files: fileRules{lines: map[string]int{}},
	}
	root := r.root(text)
	if root == nil {
		return f, r.err()
	}
	if (r.layer == task.LayerTask || r.layer == task.LayerProject) && vercel.Is(root) {
		if root = r.translated(root); root == nil {
			return f, r.err()
		}
		f.form = "vercel"
	}
	known := fields(r, &f)
	known["version"] = r.version
	r.fields(root, "", known)
	if root.Kind == yaml.MappingNode && !hasKey(root, "version") {
		r.errorf(root, "version", "is missing; write version: 1")
	}
	if r.wrong == 0 {
		for _, stage := range stages() {
			r.conflicts(f.network[stage])
		}
	}
	return f, r.err()
}

// translated is a document of another form in ours; nil when it can't be.
func (r *reader) translated(root *yaml.Node) *yaml.Node {
	ours, faults := vercel.Translate(root)
	for _, f := range faults {
		r.errorf(f.Node, f.Field, "%s", f.Text)
	}
	return ours
}

// parseTask reads a task's policy file.
func parseTask(text string) (file, error) {
	return parse(&reader{name: "policy", layer: task.LayerTask}, text, taskFields)
}

// parseProject reads a project's layer: a task's file, and what binds tasks.
func parseProject(name, text string) (file, error) {
	r := &reader{name: "policy of project " + name, layer: task.LayerProject}
	return parse(r, text, func(r *reader, f *file) fieldReaders {
		known := taskFields(r, f)
		known["ceiling"] = func(n *yaml.Node, p string) { f.ceiling = r.ceiling(n, p) }
		known["repository"] = func(n *yaml.Node, p string) { f.ask = r.mayAsk(n, p) }
		return known
	})
}

// parseOperator reads the operator's layer.
func parseOperator(text string) (file, error) {
	r := &reader{name: "operator policy", layer: task.LayerOperator}
	return parse(r, text, func(r *reader, f *file) fieldReaders {
		return fieldReaders{
			"output":     func(n *yaml.Node, p string) { f.flags = verdicts.Parse(n, p, r.errorf) },
			"private":    func(n *yaml.Node, p string) { f.private = r.private(n, p) },
			"ceiling":    func(n *yaml.Node, p string) { f.ceiling = r.ceiling(n, p) },
			"repository": func(n *yaml.Node, p string) { f.ask = r.mayAsk(n, p) },
			"defaults": func(n *yaml.Node, p string) {
				r.fields(n, p, fieldReaders{
					"limits": func(n *yaml.Node, p string) { f.defaults = r.limits(n, p) },
					"access": func(n *yaml.Node, p string) { f.access = access.Parse(n, p, r.errorf) },
				})
			},
		}
	})
}

// taskFields are the fields of a task's file.
func taskFields(r *reader, f *file) fieldReaders {
	known := fieldReaders{
		"limits":   func(n *yaml.Node, p string) { f.limits = r.limits(n, p) },
		"files":    func(n *yaml.Node, p string) { f.files = r.fileRules(n, p) },
		"output":   func(n *yaml.Node, p string) { f.flags = verdicts.Parse(n, p, r.errorf) },
		"sudo":     func(n *yaml.Node, p string) { v := r.flag(n, p); f.sudo, f.sudoLine = &v, n.Line },
		"examples": func(n *yaml.Node, p string) { f.examples = r.examples(n, p) },
	}
	for _, stage := range stages() {
		known[string(stage)] = func(n *yaml.Node, p string) {
			known := fieldReaders{
				"network":  func(n *yaml.Node, p string) { r.network(n, p, f, stage) },
				"time":     func(n *yaml.Node, p string) { f.time[stage] = lasting{r.duration(n, p), n.Line} },
				"identity": func(n *yaml.Node, p string) { f.identity[stage] = r.identities(n, p) },
			}
			if stage == task.Agent {
				known["models"] = func(n *yaml.Node, p string) { f.models = modelList{r.models(n, p), n.Line} }
				known["access"] = func(n *yaml.Node, p string) { f.access = access.Parse(n, p, r.errorf) }
				known["tools"] = func(n *yaml.Node, p string) { f.tools = tools.Parse(n, p, r.errorf) }
			}
			if stage == task.Verify {
				for _, v := range verifying.Fields() {
					known[v.Name] = func(n *yaml.Node, p string) {
						*v.Of(&f.verify.Verifying), f.verify.Line = r.oneOf(n, p, v.Words...), n.Line
					}
				}
			}
			if stage == task.Checkout {
				known["credential"] = func(n *yaml.Node, p string) { f.checkout = r.credential(n, p) }
			}
			r.fields(n, p, known)
		}
	}
	return known
}

func (r *reader) network(n *yaml.Node, path string, f *file, stage task.StageName) {
	known := fieldReaders{
		"allow": func(n *yaml.Node, p string) { f.network[stage] = r.rules(n, p) },
	}
	if f.layer != task.LayerRepository { // a stranger's file has no say in it
		known["unknown"] = func(n *yaml.Node, p string) { f.unknown[stage] = r.unknown(n, p) }
		known["askWait"] = func(n *yaml.Node, p string) { f.wait[stage] = r.askWait(n, p) }
	}
	r.fields(n, path, known)
}

// parseRepository reads what a repository asks for. Its bytes are a stranger's.
func parseRepository(text string) (file, error) {
	r := &reader{name: "the repository's .cofferdam/task.yaml", layer: task.LayerRepository}
	if len(text) > MaxRepositoryFile {
		r.errorf(nil, "", "longer than %d bytes", MaxRepositoryFile)
		return file{}, r.err()
	}
	return parse(r, text, repositoryFields)
}

func repositoryFields(r *reader, f *file) fieldReaders {
	f.work = &repository{}
	say := func(to *string, most int) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) {
			*to = r.text(n, p, most)
			if f.work.line == 0 {
				f.work.line = n.Line
			}
		}
	}
	stage := func(name task.StageName, more fieldReaders) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) {
			known := fieldReaders{"network": func(n *yaml.Node, p string) { r.network(n, p, f, name) }}
			maps.Copy(known, more)
			r.fields(n, p, known)
		}
	}
	a := &f.work.Agent
	return fieldReaders{
		"setup": stage(task.Setup, fieldReaders{"command": say(&f.work.Setup, 64<<10)}),
		"verify": stage(task.Verify, fieldReaders{
			"command": say(&f.work.Verify, 64<<10), "report": func(n *yaml.Node, p string) { f.work.Report = r.path(n, p) },
		}),
		"agent": stage(task.Agent, fieldReaders{
			"name": say(&a.Name, 64), "version": say(&a.Version, 64), "model": say(&a.Model, 256),
			"argv": func(n *yaml.Node, p string) {
				r.list(n, p, func(n *yaml.Node, p string) { a.Argv = append(a.Argv, r.text(n, p, 64<<10)) })
			},
		}),
		"keep": func(n *yaml.Node, p string) {
			r.list(n, p, func(n *yaml.Node, p string) { f.work.Files = append(f.work.Files, r.text(n, p, 1024)) })
		},
		"files": func(n *yaml.Node, p string) { f.files = r.fileRules(n, p) },
	}
}

// private reads the operator's list of what may be reached although it is
// private: hosts by name and port, no patterns and nothing about requests.
func (r *reader) private(n *yaml.Node, path string) []lined {
	rules := r.rules(n, path)
	for _, rule := range rules {
		if match.IsPattern(rule.Host) || rule.Protocol != "" || rule.Requests() {
			r.add(at(r.name, rule.line, path, "takes host and ports alone, without patterns; say the rest in the task's rule"))
		}
	}
	return rules
}

// bounds reads rules that say what there may be at most.
func (r *reader) bounds(n *yaml.Node, path string) []lined {
	var rules []lined
	r.fields(n, path, fieldReaders{"allow": func(n *yaml.Node, p string) { rules = r.rules(n, p) }})
	for _, rule := range rules {
		if rule.Credential != "" {
			r.add(at(r.name, rule.line, path, "a ceiling lends nothing; name credentials under ceiling.credentials"))
		}
	}
	if rules == nil {
		rules = []lined{}
	}
	return rules
}

func (r *reader) ceiling(n *yaml.Node, path string) ceiling {
	c := ceiling{stages: map[task.StageName][]lined{}, line: n.Line}
	known := fieldReaders{
		"limits":  func(n *yaml.Node, p string) { c.limits = r.limits(n, p) },
		"network": func(n *yaml.Node, p string) { c.all = r.bounds(n, p) },
		"credentials": func(n *yaml.Node, p string) {
			c.credentials = []string{}
			r.list(n, p, func(n *yaml.Node, p string) { c.credentials = append(c.credentials, r.credential(n, p)) })
		},
		"files": func(n *yaml.Node, p string) {
			r.fields(n, p, fieldReaders{"widen": func(n *yaml.Node, p string) {
				c.widen = []string{}
				r.list(n, p, func(n *yaml.Node, p string) { c.widen = append(c.widen, r.path(n, p)) })
			}})
		},
		"models":   func(n *yaml.Node, p string) { c.models = modelList{r.models(n, p), n.Line} },
		"tools":    func(n *yaml.Node, p string) { c.tools = tools.Parse(n, p, r.errorf) },
		"unknown":  func(n *yaml.Node, p string) { u := r.unknown(n, p); c.unknown = &u },
		"answer":   func(n *yaml.Node, p string) { c.adminsOnly = r.oneOf(n, p, "admins", "requester") == "admins" },
		"identity": func(n *yaml.Node, p string) { c.identity = r.identities(n, p) },
		"splice":   func(n *yaml.Node, p string) { c.noSplice = r.oneOf(n, p, "forbid", "allow") == "forbid" },
		"sudo":     func(n *yaml.Node, p string) { c.noSudo = r.oneOf(n, p, "forbid", "allow") == "forbid" },
	}
	for _, stage := range stages() {
		known[string(stage)] = func(n *yaml.Node, p string) {
			within := fieldReaders{"network": func(n *yaml.Node, p string) { c.stages[stage] = r.bounds(n, p) }}
			if stage == task.Verify {
				within["flaky"] = func(n *yaml.Node, p string) { c.flakyFails = r.oneOf(n, p, "fails", "passes") == "fails" }
			}
			r.fields(n, p, within)
		}
	}
	r.fields(n, path, known)
	return c
}

func (r *reader) mayAsk(n *yaml.Node, path string) *mayAsk {
	m := &mayAsk{}
	r.fields(n, path, fieldReaders{
		"network":  func(n *yaml.Node, p string) { m.network = r.rules(n, p) },
		"commands": func(n *yaml.Node, p string) { m.commands = r.flag(n, p) },
	})
	return m
}

// sortedStages are the keys in the order of the stages.
func sortedStages[T any](m map[task.StageName]T) []task.StageName {
	return slices.DeleteFunc(stages(), func(s task.StageName) bool { _, ok := m[s]; return !ok })
}
