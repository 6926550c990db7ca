package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The checkout of a URL is lent the credential that the request names, else the
// one of the lowest layer that does, within the ceilings.
func TestCheckoutCredential(t *testing.T) {
	const url = "https://git.example.com:8443/a/b.git"
	say := func(name string) string { return "version: 1\ncheckout:\n  credential: " + name + "\n" }
	for name, c := range map[string]struct {
		repo                    task.Repo
		task, project, operator string
		want                    string // the credential
		fault                   string
	}{
		"none":                {repo: task.Repo{URL: url}},
		"the request's":       {repo: task.Repo{URL: url, Credential: "mine"}, task: say("other"), project: say("third"), want: "mine"},
		"the policy's":        {repo: task.Repo{URL: url}, task: say("other"), project: say("third"), want: "other"},
		"the project's":       {repo: task.Repo{URL: url}, task: "version: 1\n", project: say("third"), want: "third"},
		"a bundle":            {repo: task.Repo{Bundle: "sha256:x"}, task: say("other")},
		"within a ceiling":    {repo: task.Repo{URL: url, Credential: "mine"}, operator: "version: 1\nceiling:\n  credentials: [mine]\n", want: "mine"},
		"beyond a ceiling":    {repo: task.Repo{URL: url, Credential: "mine"}, operator: "version: 1\nceiling:\n  credentials: [other]\n", fault: `repo.url: the credential "mine" is none`},
		"no name":             {repo: task.Repo{URL: url, Credential: "a b"}, fault: "repo.credential:"},
		"no name in a policy": {repo: task.Repo{URL: url}, task: say("'a b'"), fault: "checkout.credential"},
		"of another stage":    {repo: task.Repo{URL: url}, task: "version: 1\nagent:\n  credential: x\n", fault: "agent.credential: unknown field"},
		"against a rule": {
			repo: task.Repo{URL: url, Credential: "mine"}, fault: "repo.url",
			task: "version: 1\ncheckout:\n  network:\n    allow:\n      - {host: git.example.com, ports: [8443], credential: other}\n",
		},
	} {
		plan, err := Compile(task.Spec{Repo: c.repo, Policy: c.task, Project: "p"}, task.Layers{Operator: c.operator, Project: c.project})
		if c.fault != "" {
			var f *task.Failure
			if !errors.As(err, &f) || !strings.Contains(f.Text, c.fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want []task.Rule
		if c.repo.URL != "" {
			want = []task.Rule{{ID: "repo.url", Host: "git.example.com", Ports: []uint16{8443}, Layer: task.LayerTask}}
		}
		if c.want != "" {
			want[0].Protocol, want[0].Credential = task.ProtocolHTTP, c.want
		}
		if got := plan.Rules[task.Checkout]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	// A repository has no say in it.
	plan, err := Compile(task.Spec{Repo: task.Repo{URL: url}}, task.Layers{Repository: say("theirs")})
	if err != nil || plan.Rules[task.Checkout][0].Credential != "" {
		t.Errorf("a repository's: %+v, %v", plan.Rules, err)
	}
}
