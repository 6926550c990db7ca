package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	asks = "version: 1\nagent: {network: {unknown: ask}}\n"
	logs = "version: 1\nagent: {network: {unknown: log}}\n"
)

// A lower layer is only ever stricter about the unknown than those above it.
func TestUnknownNarrows(t *testing.T) {
	const v = "version: 1\n"
	for name, c := range map[string]struct {
		operator, project, task string
		want                    task.UnknownMode
		refused                 string
	}{
		"nothing said":                        {task: v},
		"denied by name":                      {task: v + "agent: {network: {unknown: deny}}"},
		"asked for":                           {task: asks, want: task.UnknownAsk},
		"log needs the operator":              {task: logs, refused: "log is more than ask; the operator policy allows no more (ceiling.unknown)"},
		"log allowed":                         {operator: v + "ceiling: {unknown: log}", task: logs, want: task.UnknownLog},
		"operator denies":                     {operator: v + "ceiling: {unknown: deny}", task: asks, refused: "ask is more than deny"},
		"project asks, task silent":           {project: asks, task: v, want: task.UnknownAsk},
		"project asks, task denies":           {project: asks, task: v + "agent: {network: {unknown: deny}}"},
		"project asks, task lists":            {project: asks, task: v + "agent: {network: {allow: []}}"},
		"project denies, task asks":           {project: v + "agent: {network: {unknown: deny}}", task: asks, refused: "the policy of project p allows no more"},
		"project names hosts, task asks":      {project: v + "agent: {network: {allow: [{host: a.test}]}}", task: asks, refused: "ask is more than deny"},
		"project's ceiling lets":              {project: v + "agent: {network: {allow: [{host: a.test}]}}\nceiling: {unknown: ask}", task: asks, want: task.UnknownAsk},
		"project's ceiling denies":            {project: v + "ceiling: {unknown: deny}", task: asks, refused: "the policy of project p allows no more"},
		"project's ceiling is no permission":  {project: v + "ceiling: {unknown: log}", task: logs, refused: "the operator policy allows no more"},
		"project logs against the operator":   {project: logs, task: v, refused: "policy of project p line 2: agent.network.unknown: log is more than ask"},
		"project asks where log is permitted": {operator: v + "ceiling: {unknown: log}", project: asks, task: logs, refused: "log is more than ask; the policy of project p"},
		"another stage":                       {task: v + "setup: {network: {unknown: ask}}"},
	} {
		plan, err := Compile(task.Spec{Project: "p", Policy: c.task}, task.Layers{Operator: c.operator, Project: c.project})
		if c.refused != "" {
			if err == nil {
				t.Errorf("%s: compiled", name)
				continue
			}
			wantFailure(t, err, task.PolicyCeiling, c.refused)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := plan.Grant("t", task.Agent, "sb").Unknown; got.Mode != c.want {
			t.Errorf("%s: %q, want %q", name, got.Mode, c.want)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	plan := compiled(t, task.Spec{Policy: "version: 1\nsetup: {network: {unknown: ask, askWait: 30s, allow: [{host: a.example.com}]}}\nagent: {network: {unknown: ask}}"},
		task.Layers{Operator: "version: 1\nceiling: {splice: forbid, answer: admins, network: {allow: [{host: '**.example.com'}]}}"})
	if u := plan.Unknown[task.Setup]; u.Wait != 30*time.Second || !u.Admins || !u.Inspect || len(u.Within) != 1 {
		t.Errorf("%+v", u)
	}
	if u := plan.Unknown[task.Agent]; u.Wait != 2*time.Minute {
		t.Errorf("%+v", u)
	}
	for text, want := range map[string]string{
		"agent: {network: {unknown: yes}}":                 "is not one of deny, ask, log",
		"agent: {network: {unknown: ask, askWait: 11m}}":   "too long to hold a connection",
		"agent: {network: {unknown: ask, askWait: 100ms}}": "is not a duration",
	} {
		_, err := Compile(task.Spec{Policy: "version: 1\n" + text}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, want)
	}
	// A repository has no say in it.
	plan = compiled(t, task.Spec{}, task.Layers{Repository: asks})
	if len(plan.Unknown) != 0 || !strings.Contains(strings.Join(plan.Narrowed, " "), "unknown field") {
		t.Errorf("%+v", plan)
	}
	_, lines, err := Explain(task.Spec{Policy: asks}, task.Layers{}, task.Agent)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range lines {
		found = found || l.Field == "agent.network.unknown" && l.Text == "ask" && l.Line == 2 && strings.Contains(l.Note, "2m0s")
	}
	if !found {
		t.Errorf("not explained: %+v", lines)
	}
}

// What would pass lies within every ceiling, lends nothing and opens nothing.
func TestPassing(t *testing.T) {
	rule := func(host, protocol string, more ...func(*task.Rule)) []task.Rule {
		r := task.Rule{Host: host, Ports: []uint16{443}, Protocol: protocol}
		for _, f := range more {
			f(&r)
		}
		return []task.Rule{r}
	}
	get := func(r *task.Rule) { r.Methods = []string{"GET"} }
	for name, c := range map[string]struct {
		u    task.Unknown
		use  decide.Use
		seen string
		want string // the protocol; "no": denied
	}{
		"zero":                 {task.Unknown{}, decide.Use{Name: "a.test", Port: 443}, "tls", "no"},
		"another mode":         {task.Unknown{Mode: "all"}, decide.Use{Name: "a.test", Port: 443}, "tls", "no"},
		"tls":                  {task.Unknown{Mode: "ask"}, decide.Use{Name: "a.test", Port: 443}, "tls", "tls"},
		"http":                 {task.Unknown{Mode: "ask"}, decide.Use{Name: "a.test", Port: 80}, "http", "http"},
		"other":                {task.Unknown{Mode: "ask"}, decide.Use{Name: "a.test", Port: 22}, "tcp", "tcp"},
		"address":              {task.Unknown{Mode: "ask"}, decide.Use{Address: "192.0.2.1", Port: 443}, "tls", "tls"},
		"no port":              {task.Unknown{Mode: "ask"}, decide.Use{Name: "a.test"}, "tls", "no"},
		"both":                 {task.Unknown{Mode: "ask"}, decide.Use{Name: "a.test", Address: "192.0.2.1", Port: 443}, "tls", "no"},
		"log":                  {task.Unknown{Mode: "log"}, decide.Use{Name: "a.test", Port: 22}, "", ""},
		"log, no splice":       {task.Unknown{Mode: "log", Inspect: true}, decide.Use{Name: "a.test", Port: 22}, "", "http"},
		"tls, no splice":       {task.Unknown{Mode: "ask", Inspect: true}, decide.Use{Name: "a.test", Port: 443}, "tls", "http"},
		"other, no splice":     {task.Unknown{Mode: "ask", Inspect: true}, decide.Use{Name: "a.test", Port: 22}, "tcp", "no"},
		"within":               {task.Unknown{Mode: "ask", Within: [][]task.Rule{rule("**.test", "")}}, decide.Use{Name: "a.test", Port: 443}, "tls", "tls"},
		"within http alone":    {task.Unknown{Mode: "ask", Within: [][]task.Rule{rule("**.test", "http")}}, decide.Use{Name: "a.test", Port: 443}, "tls", "http"},
		"another host":         {task.Unknown{Mode: "ask", Within: [][]task.Rule{rule("**.test", ""), rule("b.test", "")}}, decide.Use{Name: "a.test", Port: 443}, "tls", "no"},
		"another port":         {task.Unknown{Mode: "ask", Within: [][]task.Rule{rule("a.test", "")}}, decide.Use{Name: "a.test", Port: 8443}, "tls", "no"},
		"nothing":              {task.Unknown{Mode: "ask", Within: [][]task.Rule{{}}}, decide.Use{Name: "a.test", Port: 443}, "tls", "no"},
		"a ceiling of methods": {task.Unknown{Mode: "ask", Within: [][]task.Rule{rule("a.test", "", get)}}, decide.Use{Name: "a.test", Port: 443}, "tls", "no"},
	} {
		got, ok := decide.Passing(c.u, c.use, c.seen)
		if ok != (c.want != "no") || ok && (got.Protocol != c.want || got.Credential != "" || got.Private || len(got.Ports) != 1 || got.Ports[0] != c.use.Port) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}
