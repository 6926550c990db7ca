package egress

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/selftest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// values lends a value for each lease, or fails.
type values map[string]any

func (v values) Value(_ context.Context, sandbox string, l task.Lease) (outbound.Secret, error) {
	switch value := v[l.ID].(type) {
	case string:
		return task.NewSecret(value), nil
	case error:
		return outbound.Secret{}, value
	}
	return outbound.Secret{}, task.Fail(task.PolicyCredential, "not lent to "+sandbox, nil)
}

// everyKind are leases of the kinds that requests carry, bound to hosts that do
// not exist.
func everyKind() []task.Lease {
	l := func(id, kind string, settings map[string]string) task.Lease {
		return task.Lease{
			ID: id, Credential: "c-" + id, Kind: kind, Settings: settings, Placeholder: "placeholder" + id, Hosts: []string{id + ".test", "**.of." + id + ".test"},
			Ports: []uint16{8443}, Methods: []string{"POST"}, Paths: []string{"/only/**"},
		}
	}
	bearer := l("header", task.KindHeader, nil)
	bearer.Header, bearer.Prefix = "Authorization", "Bearer "
	old := l("old", "", nil)
	old.Header = "X-Api-Key"
	app := l("app", task.KindGitHubApp, map[string]string{"carry": "header"})
	app.Header, app.Prefix = "Authorization", "Bearer "
	return []task.Lease{
		bearer, old, l("query", task.KindQuery, map[string]string{"parameter": "$key"}), l("basic", task.KindBasic, nil),
		l("git", task.KindGit, map[string]string{"user": "u", "push": "no", "repository": "acme/*/**, other/app"}), l("git2", task.KindGit, map[string]string{"user": "u"}),
		app, l("app2", task.KindGitHubApp, map[string]string{"carry": "git", "user": "x-access-token", "push": "no", "repository": "acme/app"}),
	}
}

func provenRig(t *testing.T, lender outbound.Lender, leases []task.Lease) *rig {
	t.Helper()
	r := newRig(t, nil, func(o *Options) { o.Lender = lender })
	grant := grantOf()
	for _, l := range leases {
		grant.Rules = append(grant.Rules, task.Rule{ID: "r-" + l.ID, Host: l.Hosts[0], Ports: l.Ports, Credential: l.Credential})
	}
	grant.Leases = leases
	if err := r.gateway.SetGrant(grant); err != nil {
		t.Fatal(err)
	}
	return r
}

// Every lease is tried through the sandbox's own handler, nothing is looked up
// or dialled, and it is on record.
func TestLeasesAreProved(t *testing.T) {
	lent := values{}
	for _, l := range everyKind() {
		lent[l.ID] = "R&AL va/lue+" + l.ID
	}
	r := provenRig(t, lent, everyKind())
	if err := r.gateway.Prove(r.ctx(), testID); err != nil {
		t.Fatal(err)
	}
	if n := r.resolver.queries(); n != 0 {
		t.Errorf("%d names were looked up", n)
	}
	for _, l := range everyKind() {
		found := 0
		for _, rec := range r.logged() {
			if rec.Lease == l.ID && rec.Name == selftest.Host && rec.Rule == "self-test" && rec.Verdict == "allowed" && rec.Reason == "" && rec.Address == "" {
				found++
			}
		}
		if found != 2 { // that it goes, and how it ended
			t.Errorf("%d records of the trial of %s", found, l.ID)
		}
	}
	for _, rec := range r.logged() {
		if strings.Contains(rec.Path, "R&AL") || strings.Contains(rec.Path, "R%26AL") {
			t.Errorf("a record has the value: %+v", rec)
		}
	}
	if err := r.gateway.Prove(r.ctx(), "sb-bbbbbbbbbbbbbbbb"); err == nil {
		t.Error("a sandbox that is not attached is proved")
	}
}

func TestTrialsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  task.Reason
	}{
		"refused":                {task.Fail(task.PolicyCredential, "it was revoked", nil), task.PolicyCredential},
		"away":                   {task.Fail(task.InfraControlAway, "nobody answers", nil), task.InfraControlAway},
		"a provider":             {task.Fail(task.InfraCredential, "502", nil), task.InfraCredential},
		"an error":               {errors.New("disk on fire"), task.InfraSelfTest},
		"empty":                  {"", task.InfraSelfTest},
		"the placeholder itself": {"placeholderbasic", task.PolicyCredential},
		"one that can't be sent": {"a\r\nb: c", task.PolicyCredential},
	} {
		lent := values{}
		for _, l := range everyKind() {
			lent[l.ID] = "REALVALUE" + l.ID
		}
		lent["basic"] = c.value
		r := provenRig(t, lent, everyKind())
		err := r.gateway.Prove(r.ctx(), testID)
		f, ok := errors.AsType[*task.Failure](err)
		if !ok || f.Reason != c.want || !strings.Contains(f.Text, `"c-basic"`) || strings.Contains(err.Error(), "REALVALUE") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := provenRig(t, nil, everyKind())
	var f *task.Failure
	if err := r.gateway.Prove(r.ctx(), testID); !errors.As(err, &f) || f.Reason != task.InfraControlAway {
		t.Errorf("without a lender: %v", err)
	}
}
