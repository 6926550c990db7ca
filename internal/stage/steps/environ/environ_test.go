package environ

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func login(name string, hosts ...string) task.Lent {
	return task.Lent{Lease: task.Lease{
		Credential: name, Kind: task.KindPostgres, Placeholder: "placeholder" + name, Hosts: hosts, Ports: []uint16{5432},
		Settings: map[string]string{"user": "app ro", "database": "orders,stock"},
	}}
}

func rule(name, host string) task.Rule {
	return task.Rule{Host: host, Ports: []uint16{443, 5432}, Protocol: task.ProtocolPostgres, Credential: name}
}

func TestVariables(t *testing.T) {
	key := task.Lent{Lease: task.Lease{Credential: "key", Placeholder: "sk-placeholder"}, Env: "KEY"}
	silent := task.Lent{Lease: task.Lease{Credential: "other", Placeholder: "p"}}
	named := login("db", "db.example.com")
	named.Env = "DATABASE_URL"
	rest := []string{"PGPORT=5432", "PGUSER=app ro", "PGDATABASE=orders", "PGPASSWORD=placeholderdb", "PGSSLMODE=verify-full", "PGSSLROOTCERT=" + bundle}
	own := func(audience string) task.Lent {
		return task.Lent{Lease: task.Lease{
			Credential: task.Identity{Audience: audience}.Name(), Kind: task.KindOIDC, Placeholder: "placeholder-own", Settings: map[string]string{"audience": audience},
		}, Env: task.TokenEnv}
	}
	for name, c := range map[string]struct {
		lent  []task.Lent
		rules []task.Rule
		want  []string
	}{
		"none":              {nil, nil, nil},
		"tokens of the run": {[]task.Lent{own("a"), own("b")}, nil, []string{task.TokenURLEnv + "=" + task.TokenURL, task.TokenEnv + "=placeholder-own"}},
		"a header":          {[]task.Lent{silent, key}, nil, []string{"KEY=sk-placeholder"}},
		"a login":           {[]task.Lent{login("db", "db.example.com")}, []task.Rule{rule("db", "db.example.com")}, append([]string{"PGHOST=db.example.com"}, rest...)},
		"a pattern's login": {[]task.Lent{login("db", "*.example.com")}, []task.Rule{rule("db", "one.example.com")}, append([]string{"PGHOST=one.example.com"}, rest...)},
		"a rule's pattern":  {[]task.Lent{login("db", "*.a.test", "db.example.com")}, []task.Rule{rule("db", "*.example.com")}, append([]string{"PGHOST=db.example.com"}, rest...)},
		"patterns alone":    {[]task.Lent{login("db", "*.example.com")}, []task.Rule{rule("db", "*.example.com")}, rest},
		"the first of two": {
			[]task.Lent{login("db", "db.example.com"), login("second", "db.example.com"), key},
			[]task.Rule{rule("second", "db.example.com"), rule("db", "db.example.com")},
			append(append([]string{"PGHOST=db.example.com"}, rest...), "KEY=sk-placeholder"),
		},
		"a pattern first": {
			[]task.Lent{login("db", "*.example.com"), login("second", "db.example.com")},
			[]task.Rule{rule("second", "db.example.com"), rule("db", "*.example.com")},
			rest,
		},
		"a URI": {
			[]task.Lent{named},
			[]task.Rule{rule("db", "db.example.com")},
			append(append([]string{"PGHOST=db.example.com"}, rest...),
				"DATABASE_URL=postgresql://app%20ro:placeholderdb@db.example.com:5432/orders?sslmode=verify-full&sslrootcert=%2Fetc%2Fssl%2Fcerts%2Fca-certificates.crt"),
		},
	} {
		if got := Of(c.lent, c.rules); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, c.want)
		}
	}
	v6 := login("db", "2001:db8::1")
	v6.Env = "U"
	env := Of([]task.Lent{v6}, []task.Rule{rule("db", "2001:db8::1")})
	_, text, _ := strings.Cut(env[len(env)-1], "=")
	if u, err := url.Parse(text); err != nil || u.Hostname() != "2001:db8::1" || u.Port() != "5432" {
		t.Errorf("%q: %v", text, err)
	}
}
