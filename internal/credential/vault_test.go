package credential

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRequestsAreChecked(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for name, c := range map[string]struct {
		change func(*task.CredentialRequest)
		want   string
	}{
		"no name":           {func(r *task.CredentialRequest) { r.Name = "" }, "name:"},
		"name in capitals":  {func(r *task.CredentialRequest) { r.Name = "Key" }, "name:"},
		"name with a path":  {func(r *task.CredentialRequest) { r.Name = "../key" }, "name:"},
		"no owner":          {func(r *task.CredentialRequest) { r.Owner = "" }, "owner:"},
		"no host":           {func(r *task.CredentialRequest) { r.Hosts = nil }, "hosts: none"},
		"every host":        {func(r *task.CredentialRequest) { r.Hosts = []string{"*"} }, "hosts[0]: \"*\" would be every host"},
		"every host, twice": {func(r *task.CredentialRequest) { r.Hosts = []string{"**"} }, "every host"},
		"any domain":        {func(r *task.CredentialRequest) { r.Hosts = []string{"a.example", "**.com"} }, "hosts[1]:"},
		"a star within":     {func(r *task.CredentialRequest) { r.Hosts = []string{"api.*.example.com"} }, "star"},
		"a star in a label": {func(r *task.CredentialRequest) { r.Hosts = []string{"api*.example.com"} }, "star"},
		"a URL":             {func(r *task.CredentialRequest) { r.Hosts = []string{"https://api.example.com"} }, "without scheme"},
		"a port":            {func(r *task.CredentialRequest) { r.Hosts = []string{"api.example.com:443"} }, "without scheme"},
		"capitals":          {func(r *task.CredentialRequest) { r.Hosts = []string{"API.example.com"} }, "lower case"},
		"a last dot":        {func(r *task.CredentialRequest) { r.Hosts = []string{"api.example.com."} }, "dot at its end"},
		"an odd address":    {func(r *task.CredentialRequest) { r.Hosts = []string{"::ffff:10.0.0.1"} }, "usual form"},
		"port 0":            {func(r *task.CredentialRequest) { r.Ports = []uint16{0} }, "ports[0]"},
		"a method":          {func(r *task.CredentialRequest) { r.Methods = []string{"get"} }, "methods[0]"},
		"CONNECT":           {func(r *task.CredentialRequest) { r.Methods = []string{"CONNECT"} }, "methods[0]"},
		"a path":            {func(r *task.CredentialRequest) { r.Paths = []string{"a/b"} }, "paths[0]"},
		"dots in a path":    {func(r *task.CredentialRequest) { r.Paths = []string{"/a/../b"} }, "paths[0]"},
		"a query":           {func(r *task.CredentialRequest) { r.Paths = []string{"/a?b"} }, "without query"},
		"stars in a path":   {func(r *task.CredentialRequest) { r.Paths = []string{"/**/b"} }, "last one"},
		"Host":              {func(r *task.CredentialRequest) { r.Header = "host" }, "header: \"host\" says which server"},
		"Connection":        {func(r *task.CredentialRequest) { r.Header = "Connection" }, "belongs to the connection"},
		"Transfer-Encoding": {func(r *task.CredentialRequest) { r.Header = "transfer-encoding" }, "belongs to the connection"},
		"a proxy's":         {func(r *task.CredentialRequest) { r.Header = "Proxy-Authorization" }, "belongs to the connection"},
		"Cookie":            {func(r *task.CredentialRequest) { r.Header = "Cookie" }, "many values"},
		"X-Forwarded-For":   {func(r *task.CredentialRequest) { r.Header = "X-Forwarded-For" }, "meaning of its own"},
		"no header's name":  {func(r *task.CredentialRequest) { r.Header = "a b" }, "letters, digits"},
		"a pseudo-header":   {func(r *task.CredentialRequest) { r.Header = ":authority" }, "letters, digits"},
		"a prefix":          {func(r *task.CredentialRequest) { r.Prefix = "Bearer \r\nX: " }, "prefix:"},
		"a variable":        {func(r *task.CredentialRequest) { r.Env = "A-B" }, "env:"},
		"the loader's":      {func(r *task.CredentialRequest) { r.Env = "LD_PRELOAD" }, "env:"},
		"PATH":              {func(r *task.CredentialRequest) { r.Env = "PATH" }, "env:"},
		"a provider":        {func(r *task.CredentialRequest) { r.Provider = "nobody" }, "known are anthropic, openai, google"},
		"no value":          {func(r *task.CredentialRequest) { r.Value = task.Secret{} }, "value: empty"},
		"CR":                {func(r *task.CredentialRequest) { r.Value = task.NewSecret("REALVALUE\rX") }, "value: has a line break"},
		"LF":                {func(r *task.CredentialRequest) { r.Value = task.NewSecret("REALVALUE\nX") }, "value: has a line break"},
		"NUL":               {func(r *task.CredentialRequest) { r.Value = task.NewSecret("REALVALUE\x00") }, "value: has a line break or a NUL"},
		"not ASCII":         {func(r *task.CredentialRequest) { r.Value = task.NewSecret("REALVALUEé") }, "printable ASCII"},
		"spaces":            {func(r *task.CredentialRequest) { r.Value = task.NewSecret(" REALVALUE") }, "space"},
		"long":              {func(r *task.CredentialRequest) { r.Value = task.NewSecret("REALVALUE" + long) }, "longer than"},
		"short":             {func(r *task.CredentialRequest) { r.Value = task.NewSecret("abc") }, "shorter than"},
		"a placeholder":     {func(r *task.CredentialRequest) { r.Value = task.NewSecret(newPlaceholder("sk-")) }, "placeholder"},
		"too many hosts":    {func(r *task.CredentialRequest) { r.Hosts = make([]string, 65) }, "more than 64"},
	} {
		r := ask("key")
		c.change(&r)
		_, err := request(r).credential()
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		wants(t, err, task.InputInvalid, c.want)
	}
}

func TestRequestsAreFilled(t *testing.T) {
	for _, c := range []struct {
		r    task.CredentialRequest
		want task.Credential
	}{
		{
			task.CredentialRequest{Provider: "anthropic"},
			task.Credential{Header: "X-Api-Key", Hosts: []string{"api.anthropic.com"}, Ports: []uint16{443}, Env: "ANTHROPIC_API_KEY", Shape: "sk-ant-api03-"},
		},
		{
			task.CredentialRequest{Provider: "openai", Hosts: []string{"gw.example.com"}, Ports: []uint16{8443, 443, 443}},
			task.Credential{Header: "Authorization", Prefix: "Bearer ", Hosts: []string{"gw.example.com"}, Ports: []uint16{443, 8443}, Env: "OPENAI_API_KEY", Shape: "sk-proj-"},
		},
		{
			task.CredentialRequest{Provider: "google", Env: "OTHER"},
			task.Credential{Header: "X-Goog-Api-Key", Hosts: []string{"generativelanguage.googleapis.com"}, Ports: []uint16{443}, Env: "OTHER", Shape: "AIza"},
		},
		{
			task.CredentialRequest{Hosts: []string{"b.example", "a.example", "**.c.example"}},
			task.Credential{Header: "Authorization", Prefix: "Bearer ", Hosts: []string{"**.c.example", "a.example", "b.example"}, Ports: []uint16{443}},
		},
		{
			task.CredentialRequest{Hosts: []string{"10.0.0.1", "::1"}, Header: "private-TOKEN", Value: task.NewSecret("glpat-0123456789")},
			task.Credential{Header: "Private-Token", Hosts: []string{"10.0.0.1", "::1"}, Ports: []uint16{443}, Shape: "glpat-"},
		},
		{
			task.CredentialRequest{Hosts: []string{"a.example"}, Prefix: "token "},
			task.Credential{Header: "Authorization", Prefix: "token ", Hosts: []string{"a.example"}, Ports: []uint16{443}},
		},
	} {
		c.r.Name, c.r.Owner = "n", "alice"
		if c.r.Value.Empty() {
			c.r.Value = task.NewSecret("0123456789abcdef")
		}
		got, err := request(c.r).credential()
		if err != nil {
			t.Errorf("%+v: %v", c.r, err)
			continue
		}
		c.want.Name, c.want.Owner, c.want.Kind = "n", "alice", task.KindHeader
		a, err := seal.Bound(got)
		if err != nil {
			t.Fatal(err)
		}
		b, err := seal.Bound(c.want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%+v gives\n%s, want\n%s", c.r, a, b)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range append(shapes(), shape{begin: ""}) {
		p := newPlaceholder(s.begin)
		if !strings.HasPrefix(p, s.begin) || !strings.Contains(p, "placeholder") || len(p) < len(s.begin)+len(word)+minRandom || s.length > 0 && len(p) < s.length || seen[p] {
			t.Errorf("%q: %q of %d", s.begin, p, len(p))
		}
		if valueFault(p) != "is a placeholder and not a key" {
			t.Errorf("%q is taken for a key", p)
		}
		seen[p] = true
	}
	if p := newPlaceholder("AIza"); len(p) != 39 {
		t.Errorf("%q has %d characters", p, len(p))
	}
}

func TestPatternsMeet(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.example", "a.example", true},
		{"a.example", "b.example", false},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"a.example", "*.example", true},
		{"a.b.example", "*.example", false},
		{"example", "*.example", false},
		{".example", "*.example", false},
		{"a.example", "**.example", true},
		{"a.b.example", "**.example", true},
		{"example", "**.example", false},
		{"badexample", "**.example", false},
		{".example", "**.example", false},
		{"*.example", "*.example", true},
		{"*.a.example", "*.example", false},
		{"*.example", "**.example", true},
		{"*.a.example", "**.example", true},
		{"*.example", "**.a.example", false},
		{"**.example", "**.a.example", true},
		{"**.a.example", "**.b.example", false},
		{"**.example", "**.badexample", false},
	} {
		a, b := parsePattern(c.a), parsePattern(c.b)
		if a.meets(b) != c.want || b.meets(a) != c.want {
			t.Errorf("%s and %s: %v %v", c.a, c.b, a.meets(b), b.meets(a))
		}
	}
}

// alter changes rows behind the store's back.
func (r *rig) alter(query string, args ...any) {
	r.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(r.dir, "cofferdam.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query, args...); err != nil {
		r.t.Fatal(err)
	}
}

func TestAlteredRowsDoNotOpen(t *testing.T) {
	other := func(r *rig) {
		r.add(func(q *task.CredentialRequest) {
			q.Name, q.Hosts, q.Value = "other", []string{"other.example.com"}, task.NewSecret("REALVALUE-of-the-other")
		})
	}
	for name, c := range map[string]struct {
		change func(*rig)
		text   string
	}{
		"a value of another row": {func(r *rig) {
			r.alter("UPDATE credentials SET sealed = (SELECT sealed FROM credentials WHERE name = 'other') WHERE name = 'key'")
		}, "was altered"},
		"a wider binding": {func(r *rig) {
			r.alter("UPDATE credentials SET binding = replace(binding, 'api.example.com', 'evil.example.com') WHERE name = 'key'")
		}, "was altered"},
		"another port": {func(r *rig) {
			r.alter("UPDATE credentials SET binding = replace(binding, '443', '444') WHERE name = 'key'")
		}, "was altered"},
		"another owner": {func(r *rig) { r.alter("UPDATE credentials SET owner = 'mallory' WHERE name = 'key'") }, "was altered"},
		"shared": {func(r *rig) {
			r.alter("UPDATE credentials SET binding = replace(binding, '\"kind\"', '\"shared\":true,\"kind\"') WHERE name = 'key'")
		}, "was altered"},
		"another name": {func(r *rig) {
			r.alter("DELETE FROM credentials WHERE name = 'key'")
			r.alter("UPDATE credentials SET name = 'key' WHERE name = 'other'")
		}, "was altered"},
		"altered bytes": {func(r *rig) {
			r.alter("UPDATE credentials SET sealed = substr(sealed, 1, 30) || CASE substr(sealed, 31, 1) WHEN 'A' THEN 'B' ELSE 'A' END || substr(sealed, 32) WHERE name = 'key'")
		}, "was altered"},
		"cut":             {func(r *rig) { r.alter("UPDATE credentials SET sealed = substr(sealed, 1, 16) WHERE name = 'key'") }, "was altered"},
		"emptied":         {func(r *rig) { r.alter("UPDATE credentials SET sealed = '' WHERE name = 'key'") }, "no sealed value"},
		"not base64":      {func(r *rig) { r.alter("UPDATE credentials SET sealed = '!!' WHERE name = 'key'") }, "no sealed value"},
		"another version": {func(r *rig) { r.alter("UPDATE credentials SET sealed = 'Ag' || substr(sealed, 3) WHERE name = 'key'") }, "no sealed value"},
		"another key": {func(r *rig) {
			if err := os.Remove(r.keyFile()); err != nil {
				r.t.Fatal(err)
			}
			if _, err := seal.Make(r.keyFile()); err != nil {
				r.t.Fatal(err)
			}
		}, "sealed under another vault key"},
		"a lost key":    {func(r *rig) { _ = os.Remove(r.keyFile()) }, "missing and 2 credentials"},
		"half a key":    {func(r *rig) { _ = os.WriteFile(r.keyFile(), []byte("0123\n"), 0o600) }, "is not a key"},
		"no key":        {func(r *rig) { _ = os.WriteFile(r.keyFile(), bytes.Repeat([]byte("z"), 65), 0o600) }, "is not a key"},
		"a key for all": {func(r *rig) { _ = os.Chmod(r.keyFile(), 0o644) }, "mode 0600"},
		"a linked key": {func(r *rig) {
			_ = os.Rename(r.keyFile(), r.keyFile()+".x")
			_ = os.Symlink(r.keyFile()+".x", r.keyFile())
		}, "regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := c
			cred := r.add(nil)
			other(r)
			if err := r.vault.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.reopen(func() { c.change(r) })
			wants(t, r.vault.Check(t.Context()), task.InfraVault, c.text)
			_, v, err := r.vault.active(t.Context(), "key", cred.ID)
			if !v.Empty() {
				t.Errorf("it opens: %q", v.Reveal())
			}
			if name != "another name" { // a row that is another credential now is refused as such
				wants(t, err, task.InfraVault, c.text)
			}
		})
	}
}

func TestLostKeyComesBack(t *testing.T) {
	r := newRig(t)
	c := r.add(nil)
	text, err := os.ReadFile(r.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.keyFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file %v, %v", info.Mode(), err)
	}
	r.reopen(func() { _ = os.Remove(r.keyFile()) })
	if _, err := r.leases.Add(t.Context(), ask("second"), "admin"); task.ReasonOf(err) != task.InfraVault {
		t.Errorf("adding without the key: %v", err)
	}
	if _, err := os.Stat(r.keyFile()); err == nil {
		t.Fatal("another key was made while values wait for the old one")
	}
	// Put back, it is taken without a restart.
	if err := os.WriteFile(r.keyFile(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, v, err := r.vault.active(t.Context(), "key", c.ID); err != nil || v.Reveal() != realValue {
		t.Errorf("got %v", err)
	}
	// A key that is lost for good: what it sealed is removed, and a new one made.
	r.reopen(func() { _ = os.Remove(r.keyFile()) })
	if _, _, err := r.leases.Revoke(t.Context(), "key", "admin", true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.leases.Add(t.Context(), ask("second"), "admin"); err != nil {
		t.Error(err)
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	_, err := r.leases.Add(t.Context(), ask("key"), "admin")
	wants(t, err, task.InputConflict, "name:")
	if _, _, err := r.leases.Revoke(t.Context(), "key", "admin", false); err != nil {
		t.Fatal(err)
	}
	_, err = r.leases.Add(t.Context(), ask("key"), "admin")
	wants(t, err, task.InputConflict, "remove it first")
	c, sealed, err := r.store.Credential(t.Context(), "key")
	if err != nil || c.Revoked == nil || len(sealed) != 0 {
		t.Errorf("revoked: %+v, %d sealed bytes, %v", c, len(sealed), err)
	}
	if _, _, err := r.leases.Revoke(t.Context(), "key", "admin", true); err != nil {
		t.Fatal(err)
	}
	r.add(nil)
	_, _, err = r.leases.Revoke(t.Context(), "none", "admin", true)
	wants(t, err, task.InputNotFound, "")
	for kind, n := range map[string]int{"credential.add": 2, "credential.revoke": 1, "credential.remove": 1} {
		if got := r.records(kind); got != n {
			t.Errorf("%d records of %s, want %d", got, kind, n)
		}
	}
}
