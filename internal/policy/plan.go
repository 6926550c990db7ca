package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Operator is the layer of the machine's owner. The zero value opens nothing.
type Operator struct {
	private []task.Rule
}

// ParseOperator reads the operator's layer; the empty text is the empty layer.
// Errors are *task.Failure with task.InputPolicy and name line and field.
func ParseOperator(text string) (Operator, error) {
	f, err := parseOperator(text)
	if err != nil {
		return Operator{}, err
	}
	return Operator(f), nil
}

// Plan is what a task's policy and the operator's layer come to: the rules of
// every stage that has a network, and the limits. Its digest names it in the
// record.
type Plan struct {
	Limits task.Limits                    `json:"limits"`
	Rules  map[task.StageName][]task.Rule `json:"rules"`
	Digest task.Digest                    `json:"-"`
}

// Compile turns a task's request into a plan. Errors are *task.Failure with
// task.InputPolicy or task.InputInvalid.
func (o Operator) Compile(spec task.Spec) (Plan, error) {
	f, err := parseFile(spec.Policy)
	if err != nil {
		return Plan{}, err
	}
	if spec.Repo.URL != "" {
		rule, err := repoRule(spec.Repo.URL)
		if err != nil {
			return Plan{}, err
		}
		f.allow[task.Checkout] = append(f.allow[task.Checkout], rule)
	}
	plan := Plan{Limits: f.limits.WithDefaults(), Rules: map[task.StageName][]task.Rule{}}
	for _, stage := range []task.StageName{task.Checkout, task.Setup, task.Agent, task.Verify} {
		for _, rule := range f.allow[stage] {
			plan.Rules[stage] = append(plan.Rules[stage], o.open(rule)...)
		}
	}
	canonical, err := json.Marshal(plan) // map keys are sorted by encoding/json
	if err != nil {
		return Plan{}, fmt.Errorf("policy: encode plan: %w", err)
	}
	sum := sha256.Sum256(canonical)
	plan.Digest = task.Digest("sha256:" + hex.EncodeToString(sum[:]))
	return plan, nil
}

// Grant is what one stage of one sandbox may reach under the plan.
func (p Plan) Grant(taskID string, stage task.StageName, sandbox string) task.Grant {
	return task.Grant{
		Task: taskID, Stage: stage, Sandbox: sandbox,
		PolicyDigest: p.Digest, Rules: slices.Clone(p.Rules[stage]),
	}
}

// open splits a rule into the ports that the operator's layer opens to private
// addresses and the others.
func (o Operator) open(rule task.Rule) []task.Rule {
	var public, private []uint16
	for _, port := range rule.Ports {
		if o.isPrivate(rule.Host, port) {
			private = append(private, port)
		} else {
			public = append(public, port)
		}
	}
	var rules []task.Rule
	if len(public) > 0 {
		rules = append(rules, task.Rule{ID: rule.ID, Host: rule.Host, Ports: public})
	}
	if len(private) > 0 {
		rules = append(rules, task.Rule{ID: rule.ID, Host: rule.Host, Ports: private, Private: true})
	}
	return rules
}

func (o Operator) isPrivate(host string, port uint16) bool {
	for _, rule := range o.private {
		if ruleHost(rule.Host) == ruleHost(host) && slices.Contains(rule.Ports, port) {
			return true
		}
	}
	return false
}

// repoRule lets the checkout stage reach the host the requester named as the
// repository, and nothing else.
func repoRule(raw string) (task.Rule, error) {
	bad := func(text string) (task.Rule, error) {
		return task.Rule{}, task.Fail(task.InputInvalid, "repo.url: "+text, nil)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return bad("is not a URL")
	case u.Scheme != "https":
		return bad("must be an https URL; push a local path with --repo PATH instead")
	case u.User != nil:
		return bad("must not carry a user or password")
	case u.Hostname() == "" || strings.Contains(u.Hostname(), "*"):
		return bad("has no host")
	}
	port := uint64(443)
	if p := u.Port(); p != "" {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return bad("has a port that is none")
		}
	}
	return task.Rule{ID: "repo.url", Host: ruleHost(u.Hostname()), Ports: []uint16{uint16(port)}}, nil
}
