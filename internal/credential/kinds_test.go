package credential

import (
	"maps"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Each kind takes its own settings, presets what is left out, and lends those
// that a carrier needs.
func TestCarriedKinds(t *testing.T) {
	type settings = map[string]string
	for name, c := range map[string]struct {
		kind   string
		given  settings
		change func(*task.CredentialRequest)
		fault  string
		want   settings
	}{
		"query":                   {kind: task.KindQuery, given: settings{"parameter": "$api-key_1.~"}, want: settings{"parameter": "$api-key_1.~"}},
		"query without":           {kind: task.KindQuery, fault: "settings.parameter: is missing"},
		"query, escaped":          {kind: task.KindQuery, given: settings{"parameter": "k%65y"}, fault: "settings.parameter: may have"},
		"query, two":              {kind: task.KindQuery, given: settings{"parameter": "a&b"}, fault: "settings.parameter: may have"},
		"query, list":             {kind: task.KindQuery, given: settings{"parameter": "a[]"}, fault: "settings.parameter: may have"},
		"query, long":             {kind: task.KindQuery, given: settings{"parameter": strings.Repeat("a", 65)}, fault: "settings.parameter: longer"},
		"query with a header":     {kind: task.KindQuery, given: settings{"parameter": "a"}, change: func(r *task.CredentialRequest) { r.Header = "X-Key" }, fault: "header: a credential of kind query"},
		"query with a user":       {kind: task.KindQuery, given: settings{"parameter": "a", "user": "b"}, fault: "settings.user: kind query knows"},
		"basic":                   {kind: task.KindBasic, given: settings{"user": "robot $1"}, want: settings{"user": "robot $1"}},
		"basic without a user":    {kind: task.KindBasic},
		"basic, empty":            {kind: task.KindBasic, given: settings{"user": ""}, want: settings{"user": ""}},
		"basic, colon":            {kind: task.KindBasic, given: settings{"user": "a:b"}, fault: "settings.user: has a colon"},
		"basic, not ASCII":        {kind: task.KindBasic, given: settings{"user": "é"}, fault: "settings.user: must be printable"},
		"basic, line break":       {kind: task.KindBasic, given: settings{"user": "a\r\n"}, fault: "settings.user: has a control"},
		"git":                     {kind: task.KindGit, want: settings{"user": "x-access-token", "push": "no"}},
		"git, all":                {kind: task.KindGit, given: settings{"user": "oauth2", "push": "yes", "repository": "a/b, a/*,a/**"}, want: settings{"user": "oauth2", "push": "yes", "repository": "a/b, a/*,a/**"}},
		"git, no user":            {kind: task.KindGit, given: settings{"user": ""}, fault: "settings.user: must be letters"},
		"git, a quote":            {kind: task.KindGit, given: settings{"user": "a'b"}, fault: "settings.user: must be letters"},
		"git, push":               {kind: task.KindGit, given: settings{"push": "true"}, fault: "settings.push: must be yes or no"},
		"git, .git":               {kind: task.KindGit, given: settings{"repository": "a/b.git"}, fault: "settings.repository: must name repositories without .git"},
		"git, a slash":            {kind: task.KindGit, given: settings{"repository": "/a/b"}, fault: "settings.repository: must be repositories"},
		"git, every":              {kind: task.KindGit, given: settings{"repository": "**"}, fault: `settings.repository: may have "**" only`},
		"git, in the middle":      {kind: task.KindGit, given: settings{"repository": "a/**/b"}, fault: `settings.repository: may have "**" only`},
		"git, dots":               {kind: task.KindGit, given: settings{"repository": "a/../b"}, fault: "settings.repository: must be repositories"},
		"git, a star in a part":   {kind: task.KindGit, given: settings{"repository": "a/b*"}, fault: "settings.repository: must be repositories"},
		"git, an empty part":      {kind: task.KindGit, given: settings{"repository": "a/b,"}, fault: "settings.repository: must be repositories"},
		"git, a URL":              {kind: task.KindGit, given: settings{"repository": "https://h/a/b"}, fault: "settings.repository: must be repositories"},
		"git, many":               {kind: task.KindGit, given: settings{"repository": strings.Repeat("a/b,", 64) + "a/b"}, fault: "settings.repository: names more"},
		"git with another's":      {kind: task.KindGit, given: settings{"parameter": "a"}, fault: "settings.parameter: kind git knows"},
		"git with a prefix":       {kind: task.KindGit, change: func(r *task.CredentialRequest) { r.Prefix = "token " }, fault: "header: a credential of kind git"},
		"git, a value that is no": {kind: task.KindGit, change: func(r *task.CredentialRequest) { r.Value = task.NewSecret("short") }, fault: "value: shorter"},
	} {
		q := ask("c")
		q.Kind, q.Settings, q.Header, q.Prefix = c.kind, maps.Clone(c.given), "", ""
		if c.change != nil {
			c.change(&q)
		}
		got, err := request(q).credential()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !maps.Equal(got.Settings, c.want) || !maps.Equal(settingsOf(got), c.want) || got.Header != "" || got.Kind != c.kind {
			t.Errorf("%s: %+v", name, got)
		}
		if !maps.Equal(q.Settings, c.given) {
			t.Errorf("%s: what was asked changed to %v", name, q.Settings)
		}
	}
}
