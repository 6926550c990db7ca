package credential

import (
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func askLogin() task.CredentialRequest {
	return task.CredentialRequest{
		Name: "db", Owner: "alice", Kind: task.KindPostgres, Hosts: []string{"db.example.com"},
		Settings: map[string]string{"user": "app_ro", "database": "orders,stock"}, Value: task.NewSecret("correct horse"),
	}
}

func TestPostgresLogin(t *testing.T) {
	c, err := request(askLogin()).credential()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Ports, []uint16{5432}) || c.Header != "" || c.Prefix != "" {
		t.Errorf("%+v", c)
	}
	if s := settingsOf(c); s["user"] != "app_ro" || s["database"] != "orders,stock" {
		t.Errorf("lent with %v", s)
	}
	if p := placeholderOf(c); !strings.HasPrefix(p, word) || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("placeholder %q", p)
	}
	for name, f := range map[string]struct {
		change func(*task.CredentialRequest)
		want   string
	}{
		"no user":           {func(r *task.CredentialRequest) { delete(r.Settings, "user") }, "settings.user: is missing"},
		"no database":       {func(r *task.CredentialRequest) { delete(r.Settings, "database") }, "settings.database: is missing"},
		"an empty database": {func(r *task.CredentialRequest) { r.Settings["database"] = "a,,b" }, "settings.database: has an empty name"},
		"a space":           {func(r *task.CredentialRequest) { r.Settings["database"] = "a, b" }, "settings.database:"},
		"a long user":       {func(r *task.CredentialRequest) { r.Settings["user"] = strings.Repeat("u", 64) }, "settings.user: longer"},
		"NUL":               {func(r *task.CredentialRequest) { r.Settings["user"] = "a\x00b" }, "settings.user: has a control"},
		"not UTF-8":         {func(r *task.CredentialRequest) { r.Settings["user"] = "a\xff" }, "settings.user: is not UTF-8"},
		"a header":          {func(r *task.CredentialRequest) { r.Header = "X-Key" }, "header:"},
		"methods":           {func(r *task.CredentialRequest) { r.Methods = []string{"GET"} }, "methods:"},
		"paths":             {func(r *task.CredentialRequest) { r.Paths = []string{"/x"} }, "paths:"},
		"another setting":   {func(r *task.CredentialRequest) { r.Settings["role"] = "x" }, "settings.role:"},
		"a short password":  {func(r *task.CredentialRequest) { r.Value = task.NewSecret("pass123") }, "value: shorter"},
		"no password":       {func(r *task.CredentialRequest) { r.Value = task.Secret{} }, "value: empty"},
		"a line break":      {func(r *task.CredentialRequest) { r.Value = task.NewSecret("correct horse\n") }, "value: begins or ends"},
		"not ASCII":         {func(r *task.CredentialRequest) { r.Value = task.NewSecret("correct hörse") }, "value: has a character"},
		"a long password":   {func(r *task.CredentialRequest) { r.Value = task.NewSecret(strings.Repeat("p", 9000)) }, "value: longer"},
		"its own word":      {func(r *task.CredentialRequest) { r.Value = task.NewSecret(newPlaceholder("")) }, "value: is a placeholder"},
		"every host":        {func(r *task.CredentialRequest) { r.Hosts = []string{"*"} }, "hosts[0]"},
		"no host":           {func(r *task.CredentialRequest) { r.Hosts = nil }, "hosts: none"},
	} {
		r := askLogin()
		f.change(&r)
		if _, err := request(r).credential(); err == nil {
			t.Errorf("%s: taken", name)
		} else {
			wants(t, err, task.InputInvalid, f.want)
		}
	}
}

// A rule and a credential that don't speak the same are refused before a task
// begins.
func TestPostgresRuleAndCredentialAgree(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	if _, err := r.leases.Add(t.Context(), askLogin(), "admin"); err != nil {
		t.Fatal(err)
	}
	check := func(credential, protocol string) error {
		return r.leases.Check(t.Context(), "alice", map[task.StageName][]task.Rule{task.Agent: {{
			ID: "agent.network.allow[0]", Host: "db.example.com", Ports: []uint16{5432}, Protocol: protocol, Credential: credential,
		}}})
	}
	if err := check("db", task.ProtocolPostgres); err != nil {
		t.Error(err)
	}
	wants(t, check("db", task.ProtocolHTTP), task.InputPolicy, "write protocol: postgres")
	wants(t, check("db", ""), task.InputPolicy, "write protocol: postgres")
	wants(t, check("key", task.ProtocolPostgres), task.InputPolicy, "no login of PostgreSQL")
}
