package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/verifying"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Plan is what a task's policy and the layers around it come to: the rules of
// every stage that has a network, the limits, the file rules. The same request
// and layers give the same plan. Its digest names it in the record.
type Plan struct {
	Limits     task.Limits                        `json:"limits"`
	Rules      map[task.StageName][]task.Rule     `json:"rules"`
	Unknown    map[task.StageName]task.Unknown    `json:"unknown,omitempty"` // of stages where it is not denied
	Timeout    map[task.StageName]time.Duration   `json:"timeout,omitempty"`
	Identity   map[task.StageName][]task.Identity `json:"identity,omitempty"`
	Files      task.FileRules                     `json:"files,omitzero"`
	Tools      *task.Tools                        `json:"tools,omitempty"` // of the agent; nil: no layer says anything of them
	Sudo       bool                               `json:"sudo,omitempty"`
	Flags      task.FlagRules                     `json:"flags,omitempty"` // of findings in the patch
	Verifying  task.Verifying                     `json:"verifying,omitzero"`
	Repository task.RepositoryAsk                 `json:"repository,omitzero"`
	Narrowed   []string                           `json:"narrowed,omitempty"`
	Model      task.ModelAccess                   `json:"-"` // what it comes to is in the rules
	Digest     task.Digest                        `json:"-"`
}

// Compile turns a task's request and the layers around it into a plan. Errors
// are *task.Failure: task.InputPolicy for a file that is wrong,
// task.PolicyCeiling for a request that is more than a higher layer allows,
// task.InputInvalid for another field of the request.
func Compile(spec task.Spec, layers task.Layers) (Plan, error) {
	_, plan, err := compile(spec, layers)
	return plan, err
}

func compile(spec task.Spec, layers task.Layers) (*stack, Plan, error) {
	s, err := read(spec, layers)
	if err != nil {
		return nil, Plan{}, err
	}
	plan, err := s.plan()
	if err != nil {
		return nil, Plan{}, err
	}
	canonical, err := json.Marshal(plan) // map keys are sorted by encoding/json
	if err != nil {
		return nil, Plan{}, fmt.Errorf("policy: encode plan: %w", err)
	}
	plan.Digest = DigestOf(string(canonical))
	return s, plan, nil
}

// DigestOf names a text.
func DigestOf(text string) task.Digest {
	sum := sha256.Sum256([]byte(text))
	return task.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// CheckOperator says whether the text can be an operator's layer.
func CheckOperator(text string) error {
	_, err := parseOperator(text)
	return err
}

// Grant is what one stage of one sandbox may reach under the plan.
func (p Plan) Grant(taskID string, stage task.StageName, sandbox string) task.Grant {
	return task.Grant{
		Task: taskID, Stage: stage, Sandbox: sandbox,
		PolicyDigest: p.Digest, Rules: slices.Clone(p.Rules[stage]), Unknown: p.Unknown[stage],
	}
}

// stack is the layers of one task, read.
type stack struct {
	spec                                task.Spec
	ask                                 task.RepositoryAsk
	operator, project, repository, task file
	problems                            []string
	narrowed                            []string
	origins                             map[string]origin
	allowed                             []string // models; nil: any
	keys                                task.ModelKeys
	model                               task.ModelAccess
}

// origin is where a value of the plan was said.
type origin struct {
	layer string // "" for a default of ours
	line  int
}

func read(spec task.Spec, layers task.Layers) (*stack, error) {
	s := &stack{spec: spec, keys: layers.Models, origins: map[string]origin{}}
	var err error
	if s.operator, err = parseOperator(layers.Operator); err != nil {
		return nil, err
	}
	if layers.Project != "" {
		if s.project, err = parseProject(spec.Project, layers.Project); err != nil {
			return nil, err
		}
	}
	if s.task, err = parseTask(spec.Policy); err != nil {
		return nil, err
	}
	if layers.Repository != "" {
		if s.repository, err = parseRepository(layers.Repository); err != nil {
			// A stranger's file fails no task: it is a request, and is refused.
			s.repository = file{}
			s.narrowed = append(s.narrowed, "all of it was left out, since it can't be read: "+textOf(err))
		}
	}
	return s, nil
}

func textOf(err error) string {
	if f, ok := err.(*task.Failure); ok { //nolint:errorlint // our own, never wrapped
		return f.Text
	}
	return err.Error()
}

// above are the layers that bind f, the highest first.
func (s *stack) above(f *file) []*file {
	switch f.layer {
	case task.LayerTask, task.LayerRepository:
		return []*file{&s.operator, &s.project}
	case task.LayerProject:
		return []*file{&s.operator}
	}
	return nil
}

// refuse notes that a layer asks for more than it may.
func (s *stack) refuse(f *file, line int, field, format string, args ...any) {
	s.problems = append(s.problems, brief(at(f.name, line, field, fmt.Sprintf(format, args...))))
}

// narrow notes that the repository is not given what it asks for.
func (s *stack) narrow(line int, field, format string, args ...any) {
	s.narrowed = append(s.narrowed, brief(fmt.Sprintf("line %d: %s: %s", line, field, fmt.Sprintf(format, args...))))
}

func (s *stack) plan() (Plan, error) {
	s.ask = s.asked()
	if err := s.resolve(); err != nil {
		return Plan{}, err
	}
	s.allowed = s.modelsAllowed()
	if err := s.askedModels(s.allowed); err != nil && len(s.problems) == 0 {
		return Plan{}, err
	}
	plan := Plan{Rules: map[task.StageName][]task.Rule{}, Repository: s.ask, Model: s.model}
	plan.Limits = s.limits()
	plan.Timeout = s.times()
	plan.Files = s.mergeFiles()
	plan.Sudo = s.sudo()
	plan.Verifying = s.verifying()
	plan.Tools = s.tools()
	plan.Flags = s.flags()
	for _, stage := range stages() {
		rules, err := s.rules(stage)
		if err != nil {
			return Plan{}, err
		}
		for _, rule := range rules {
			plan.Rules[stage] = append(plan.Rules[stage], s.open(rule.Rule)...)
		}
	}
	for _, stage := range stages() {
		if u := s.unknown(stage); !u.IsZero() {
			if plan.Unknown == nil {
				plan.Unknown = map[task.StageName]task.Unknown{}
			}
			plan.Unknown[stage] = u
		}
	}
	s.addIdentity(&plan)
	if err := plan.Files.Check(); err != nil && len(s.problems) == 0 {
		return Plan{}, task.Fail(task.InputPolicy, textOf(err), nil)
	}
	if len(s.problems) > 0 {
		return Plan{}, task.Fail(task.PolicyCeiling, strings.Join(first(s.problems, len(s.problems)), "; "), nil)
	}
	plan.Narrowed = first(s.narrowed, len(s.narrowed))
	return plan, nil
}

// verifying merges what the layers say of how patches are verified.
func (s *stack) verifying() task.Verifying {
	sum, from, wrong := verifying.Merge(s.project.verify, s.task.verify, s.operator.ceiling.flakyFails)
	for _, o := range from {
		s.origins[o.Field] = origin{o.Layer, o.Line}
	}
	for _, o := range wrong {
		s.refuse(s.fileOf(o.Layer), o.Line, o.Field, "%s", o.Text)
	}
	return sum
}

// asked is what the repository may say about the work, and says.
func (s *stack) asked() task.RepositoryAsk {
	ask := task.RepositoryAsk{}
	for _, f := range []*file{&s.operator, &s.project} {
		if f.ask != nil {
			ask.Allowed = ask.Allowed || f.ask.commands
			ask.Network = ask.Network || len(f.ask.network) > 0
		}
	}
	w := s.repository.work
	switch {
	case w == nil:
	case ask.Allowed:
		network := ask.Network
		ask = w.RepositoryAsk
		ask.Allowed, ask.Network = true, network
	case w.Setup != "" || w.Verify != "" || w.Report != "" || w.Agent.Name != "" || len(w.Files) > 0 || len(w.Agent.Argv) > 0:
		s.narrow(max(w.line, 1), "commands", "no higher layer says repository.commands: true, so setup, verify, report, keep and agent were left out")
	}
	return ask
}

// limits takes each limit from the lowest layer that names it, within what the
// layers above name.
func (s *stack) limits() task.Limits {
	sum := task.Limits{}
	defaults := task.DefaultLimits()
	for _, l := range limitNames() {
		bound, boundBy := int64(0), ""
		to := l.of(&sum)
		for _, f := range []*file{&s.operator, &s.project, &s.task} {
			if v := *l.of(&f.limits.Limits); v > 0 {
				if bound > 0 && v > bound {
					s.refuse(f, f.limits.lines[l.name], "limits."+l.name, "%s is more than %s; the %s allows no more", show(l.name, v), show(l.name, bound), boundBy)
				}
				*to = v
				s.origins["limits."+l.name] = origin{f.layer, f.limits.lines[l.name]}
			}
			// What a layer names binds those below, unless its ceiling says otherwise.
			if v := cmp.Or(*l.of(&f.ceiling.limits.Limits), *l.of(&f.limits.Limits)); v > 0 && (bound == 0 || v < bound) {
				bound, boundBy = v, f.name
			}
		}
		if *to > 0 {
			continue
		}
		*to = *l.of(&defaults)
		if v := *l.of(&s.operator.defaults.Limits); v > 0 {
			*to = v
			s.origins["limits."+l.name] = origin{task.LayerOperator, s.operator.defaults.lines[l.name]}
		}
		if bound > 0 && (bound < *to || *to == 0) { // of tokens and money there is no default
			*to = bound
		}
	}
	return sum
}

// times are how long the stages' commands may take, where a layer says so.
func (s *stack) times() map[task.StageName]time.Duration {
	var sum map[task.StageName]time.Duration
	for _, stage := range stages() {
		bound, boundBy := s.operator.ceiling.limits.Time, s.operator.name
		if p := s.project.ceiling.limits.Time; p > 0 && (bound == 0 || p < bound) {
			bound, boundBy = p, s.project.name
		}
		for _, f := range []*file{&s.project, &s.task} {
			t, said := f.time[stage]
			if !said {
				continue
			}
			if bound > 0 && t.Duration > bound {
				s.refuse(f, t.line, string(stage)+".time", "%s is more than %s; the %s allows no more", t, bound, boundBy)
			}
			if sum == nil {
				sum = map[task.StageName]time.Duration{}
			}
			sum[stage] = t.Duration
			s.origins[string(stage)+".time"] = origin{f.layer, t.line}
			if f.ceiling.limits.Time == 0 {
				bound, boundBy = t.Duration, f.name
			}
		}
	}
	return sum
}

func (s *stack) sudo() bool {
	allowed, refusedBy := true, ""
	for _, f := range []*file{&s.operator, &s.project} {
		if f.ceiling.noSudo || f.sudo != nil && !*f.sudo {
			allowed, refusedBy = false, f.name
		}
	}
	var sudo bool
	for _, f := range []*file{&s.project, &s.task} {
		if f.sudo == nil {
			continue
		}
		if *f.sudo && !allowed {
			s.refuse(f, f.sudoLine, "sudo", "the %s doesn't allow it; leave it out", refusedBy)
		}
		sudo = *f.sudo
		s.origins["sudo"] = origin{f.layer, f.sudoLine}
	}
	return sudo
}

// open splits a rule into the ports that the operator's layer opens to private
// addresses and the others. Of a pattern, only the hosts that the operator
// names are opened, by rules of their own.
func (s *stack) open(rule task.Rule) []task.Rule {
	var opened []task.Rule
	public := slices.Clone(rule.Ports)
	for _, p := range s.operator.private {
		if !match.HostWithin(p.Host, rule.Host) {
			continue
		}
		private := rule
		private.Host, private.Private, private.Ports = match.RuleHost(p.Host), true, nil
		for _, port := range rule.Ports {
			if slices.Contains(p.Ports, port) && !slices.Contains(private.Ports, port) {
				private.Ports = append(private.Ports, port)
			}
		}
		if len(private.Ports) == 0 {
			continue
		}
		opened = append(opened, private)
		if !match.IsPattern(rule.Host) {
			public = slices.DeleteFunc(public, func(port uint16) bool { return slices.Contains(private.Ports, port) })
		}
	}
	if len(public) > 0 {
		rule.Ports = public
		opened = slices.Insert(opened, 0, rule)
	}
	return opened
}
