//go:build root

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// registries are the hosts that the package managers of this suite ask.
func registries() []string {
	return []string{
		"registry.npmjs.org", "pypi.org", "files.pythonhosted.org", "proxy.golang.org", "sum.golang.org",
		"index.crates.io", "static.crates.io", "static.rust-lang.org", "repo.maven.apache.org", "deb.debian.org",
	}
}

// The two ways through the gateway: bytes are passed on as they are, or each
// request is decided.
const (
	spliced     = "spliced"
	intercepted = "intercepted"
)

// clients is a platform for real clients, with a server of its own outside.
type clients struct {
	e     *testenv.Env
	far   *far
	names *testenv.Nameserver      // that the gateway asks
	spent map[string]time.Duration // by step and way
}

// newClients starts the server outside and a platform that trusts and reaches
// it, and the public registries.
func newClients(t *testing.T) *clients {
	t.Helper()
	authority := egresstest.NewFar(t)
	f := serveFar(t, authority)
	zone := map[string]string{"far.test.": "127.0.0.1", "never.test.": "127.0.0.1"}
	for _, name := range registries() {
		if found, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", name); err == nil && len(found) > 0 {
			zone[name+"."] = found[0].String()
		}
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, authority.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	ns := testenv.Names(t, zone)
	return &clients{far: f, names: ns, spent: map[string]time.Duration{}, e: testenv.Start(t, testenv.Config{
		DNS: ns.Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: far.test, ports: [%d, %d]}\n", f.port, f.plain),
	})}
}

// budget prints what the suite took.
func (c *clients) budget(t *testing.T, most time.Duration) {
	t.Helper()
	var all time.Duration
	for _, name := range slices.Sorted(maps.Keys(c.spent)) {
		all += c.spent[name]
		t.Logf("%-24s %5.1f s", name, c.spent[name].Seconds())
	}
	t.Logf("budget: %.0f s of %.0f s", all.Seconds(), most.Seconds())
}

// box is a sandbox of one way.
type box struct {
	c    *clients
	way  string
	id   string
	last int64 // the last record that was read
}

// registryBox may reach the registries, one way or the other: spliced by rules
// for their hosts alone, intercepted by the presets, which these clients judge.
func (c *clients) registryBox(t *testing.T, way string) *box {
	t.Helper()
	var rules strings.Builder
	if way == intercepted {
		for _, name := range []string{"npm", "pypi", "crates", "go", "maven", "debian"} {
			fmt.Fprintf(&rules, "      - preset: %s\n", name)
		}
		// Cargo itself comes from here.
		rules.WriteString("      - {host: static.rust-lang.org, methods: [GET], paths: [/dist/*]}\n")
		return c.box(t, way, rules.String())
	}
	for _, host := range registries() {
		fmt.Fprintf(&rules, "      - {host: %s}\n", host)
	}
	// Debian's own address is one of plain HTTP.
	rules.WriteString("      - {host: deb.debian.org, ports: [80]}\n")
	return c.box(t, way, rules.String())
}

// farBox may reach the server of this test, one way or the other.
func (c *clients) farBox(t *testing.T, way string) *box {
	t.Helper()
	rule := ""
	if way == intercepted {
		rule = ", protocol: http, methods: [GET, HEAD, POST, PUT]"
	}
	return c.box(t, way, fmt.Sprintf("      - {host: far.test, ports: [%d, %d]%s}\n", c.far.port, c.far.plain, rule))
}

func (c *clients) box(t *testing.T, way, rules string) *box {
	t.Helper()
	s := sandboxOf(t, c.e, api.SandboxRequest{Policy: "version: 1\nagent:\n  network:\n    allow:\n" + rules})
	return &box{c: c, way: way, id: s.ID}
}

// run runs a script and gives what it printed and the records it made.
func (b *box) run(t *testing.T, name, script string) (string, api.CommandStatus, []task.EgressRecord) {
	t.Helper()
	begun := time.Now()
	out, status := execIn(t, b.c.e, b.id, "cd && "+b.c.far.fill(script))
	b.c.spent[name+" "+b.way] += time.Since(begun)
	return out, status, b.records(t)
}

// records are those of the gateway since the last call.
func (b *box) records(t *testing.T) []task.EgressRecord {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.c.e.Data, "gateway", "egress", b.id+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []task.EgressRecord
	for line := range bytes.Lines(text) {
		var r task.EgressRecord
		if line[len(line)-1] != '\n' { // being written
			break
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("record %q: %v", line, err)
		}
		if r.Seq > b.last {
			list, b.last = append(list, r), r.Seq
		}
	}
	return list
}

// asked counts the connections that were allowed to the host, and the requests
// of a method and a path that begins so.
func asked(records []task.EgressRecord, host, method, path string) (connections, requests int) {
	for _, r := range records {
		switch {
		case r.Name != host || r.Verdict != "allowed" || r.Done:
		case r.Request == 0:
			connections++
		case r.Method == method && strings.HasPrefix(r.Path, path):
			requests++
		}
	}
	return connections, requests
}

// refusals are the records of what was denied.
func refusals(records []task.EgressRecord) []task.EgressRecord {
	return slices.DeleteFunc(slices.Clone(records), func(r task.EgressRecord) bool { return r.Verdict != "denied" })
}

// through checks what the gateway recorded of a client that did its work: a
// connection alone where bytes were spliced, each request where they were
// decided, and no refusal.
func (b *box) through(t *testing.T, records []task.EgressRecord, host, method, path string) {
	t.Helper()
	connections, requests := asked(records, host, method, path)
	if denied := refusals(records); len(denied) > 0 {
		t.Errorf("refused: %+v", denied)
	}
	if b.way == intercepted && requests == 0 {
		t.Errorf("no record of %s https://%s%s…: %+v", method, host, path, records)
	}
	if b.way == spliced && (connections == 0 || slices.ContainsFunc(records, func(r task.EgressRecord) bool { return r.Request > 0 || r.Method != "" && r.Protocol != "http" })) {
		t.Errorf("%d connections to %s, or requests of them were looked at: %+v", connections, host, records)
	}
}

// tool is a package manager at work.
type tool struct {
	name   string
	script string
	want   string // it prints
	host   string // it asks by GET
	path   string // for what begins so
}

// tools are in an order: later ones use what earlier ones installed.
func tools() []tool {
	return []tool{
		{
			"npm", `mkdir n && cd n && npm init -y >/dev/null && npm install --no-audit --no-fund --loglevel=error is-number@7.0.0 && node -e 'console.log("npm has", require("is-number")(5))'`,
			"npm has true", "registry.npmjs.org", "/is-number",
		},
		{
			"pnpm", `npm install -g --prefix ~/.local --no-audit --no-fund --loglevel=error pnpm@9.15.9 && PATH=~/.local/bin:$PATH && mkdir p && cd p && pnpm init >/dev/null && pnpm add --reporter=append-only is-odd@3.0.1 && node -e 'console.log("pnpm has", require("is-odd")(5))'`,
			"pnpm has true", "registry.npmjs.org", "/is-odd",
		},
		{
			"deno", `npm install --prefix d --no-audit --no-fund --loglevel=error deno@2.9.6 && d/node_modules/.bin/deno eval 'const r = await fetch("https://registry.npmjs.org/is-number/7.0.0"); console.log("deno has", (await r.json()).version)'`,
			"deno has 7.0.0", "registry.npmjs.org", "/is-number/7.0.0",
		},
		{"npx", `npm_config_audit=false npx -y semver@7.6.3 -i minor 1.2.3 && echo npx has it`, "1.3.0\n", "registry.npmjs.org", "/semver"},
		{
			"pip", `/usr/bin/python3 -m pip install -q --disable-pip-version-check --break-system-packages --user requests==2.32.4 uv && /usr/bin/python3 -c 'import requests; print("pip has", requests.__version__)'`,
			"pip has 2.32.4", "pypi.org", "/simple/requests/",
		},
		{
			"uv", `~/.local/bin/uv venv -q -p /usr/bin/python3 v && ~/.local/bin/uv pip install -q -p v six==1.17.0 && v/bin/python -c 'import six; print("uv has", six.__version__)'`,
			"uv has 1.17.0", "pypi.org", "/simple/six/",
		},
		{
			"python urllib", `/usr/bin/python3 -c 'import urllib.request as u; print("urllib has", b"six-1.17.0.tar.gz" in u.urlopen("https://pypi.org/simple/six/").read())'`,
			"urllib has True", "pypi.org", "/simple/six/",
		},
		{
			"python requests", `/usr/bin/python3 -c 'import requests; s = requests.Session(); print("requests has", [n in s.get("https://pypi.org/simple/%s/" % n).text for n in ("six", "idna")])'`,
			"requests has [True, True]", "pypi.org", "/simple/idna/",
		},
		// The sums are asked for too: no go.sum is given.
		{
			"go", `mkdir g && cd g && export GOTOOLCHAIN=local GOFLAGS=-modcacherw && go mod init x 2>/dev/null && go get github.com/google/uuid@v1.6.0 && grep -c '^github.com/google/uuid v1.6.0 h1:NIvaJDMOsjHA8n1jAhLSgzrAzy1Hgr+hNrb57e+94F0=' go.sum && echo go has it`,
			"go has it", "proxy.golang.org", "/github.com/google/uuid/@v/v1.6.0",
		},
		// Cargo alone, as its own distribution has it: what it fetched is compiled by
		// Debian's, which is older than the registry's protocol.
		{
			"cargo", `curl -sSf https://static.rust-lang.org/dist/cargo-1.95.0-x86_64-unknown-linux-gnu.tar.gz | tar xz --strip-components=3 cargo-1.95.0-x86_64-unknown-linux-gnu/cargo/bin/cargo && mkdir -p c/src c/.cargo && cp cargo c/ && cd c && printf '[package]\nname="x"\nversion="0.1.0"\n[dependencies]\nitoa="=1.0.11"\n' >Cargo.toml &&
echo 'fn main() { println!("cargo has {}", itoa::Buffer::new().format(42u64)); }' >src/main.rs && ./cargo vendor -q >/dev/null && printf '[source.crates-io]\nreplace-with="v"\n[source.v]\ndirectory="vendor"\n' >.cargo/config.toml && rm Cargo.lock && /usr/bin/cargo run -q --offline`,
			"cargo has 42", "index.crates.io", "/it/oa/itoa",
		},
		{
			"mvn", `mkdir m && cd m && printf '<project><modelVersion>4.0.0</modelVersion><parent><groupId>org.sonatype.oss</groupId><artifactId>oss-parent</artifactId><version>7</version></parent><groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging></project>' >pom.xml && mvn -B validate 2>&1 | tail -n 20; ls ~/.m2/repository/org/sonatype/oss/oss-parent/7/oss-parent-7.pom && echo mvn has it`,
			"mvn has it", "repo.maven.apache.org", "/maven2/org/sonatype/oss/oss-parent/7/oss-parent-7.pom",
		},
		{"apt http", aptScript("http"), "apt has it", "deb.debian.org", "/debian/dists/bookworm-updates/"},
		{"apt https", aptScript("https"), "apt has it", "deb.debian.org", "/debian/dists/bookworm-updates/"},
	}
}

// aptScript updates and downloads as an ordinary user: state and cache are
// folders of its own. The suite is a small one.
func aptScript(scheme string) string {
	return strings.ReplaceAll(`rm -rf a; mkdir -p a/lists/partial a/cache/archives/partial && cd a && touch status &&
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] SCHEME://deb.debian.org/debian bookworm-updates main" >list &&
o="-o Dir::Etc::sourcelist=$PWD/list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$PWD/lists -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD/cache -o Acquire::Languages=none -o APT::Sandbox::User=agent" &&
apt-get $o update -q && p=tzdata && apt-get $o download -q $p && ls $p*.deb && echo apt has it`, "SCHEME", scheme)
}

// Package managers do their work through the gateway, with no setting of their
// own, and the gateway saw of each what it should.
func TestPackageManagersThroughTheGateway(t *testing.T) {
	c := newClients(t)
	for _, way := range []string{spliced, intercepted} {
		b := c.registryBox(t, way)
		for _, tool := range tools() {
			t.Run(tool.name+" "+way, func(t *testing.T) {
				out, status, records := b.run(t, tool.name, tool.script)
				if !strings.Contains(out, tool.want) || status.ExitCode != 0 {
					t.Errorf("prints %q, ended %+v", out, status)
				}
				b.through(t, records, tool.host, "GET", tool.path)
			})
		}
		if way == intercepted {
			t.Run("refused", func(t *testing.T) { b.refusedManagers(t) })
		}
		t.Run("issuer "+way, func(t *testing.T) {
			out, _, _ := b.run(t, "issuer", `curl -sv -o /dev/null https://registry.npmjs.org/is-number 2>&1 | grep issuer:`)
			if ours := strings.Contains(out, "Cofferdam gateway, sandbox "+b.id); ours != (way == intercepted) || !strings.Contains(out, "issuer:") {
				t.Errorf("curl says %q", out)
			}
		})
	}
	c.budget(t, 5*time.Minute)
}

// refusedManagers: what a rule does not allow is told by the tool itself, with
// our reason.
func (b *box) refusedManagers(t *testing.T) {
	for _, c := range []struct {
		name, script, method, host string
		want                       []string
	}{
		{"npm audit", `cd n && npm audit 2>&1`, "POST", "registry.npmjs.org", []string{"403"}},
		{"npm publish", `mkdir pub && cd pub && echo '{"name":"cofferdam-no-such-package","version":"1.0.0"}' >package.json && npm publish --//registry.npmjs.org/:_authToken=x 2>&1`, "PUT", "registry.npmjs.org", []string{"403"}},
		{"curl", `curl -s -X DELETE https://registry.npmjs.org/is-number`, "DELETE", "registry.npmjs.org", []string{`"status":403`, `"code":"policy.denied"`, `"method":"DELETE"`}},
		{"pip", `/usr/bin/python3 -m pip download -v --disable-pip-version-check -i https://never.test/simple idna 2>&1`, "", "never.test", []string{"No matching distribution"}}, // pip says no more
	} {
		out, _, records := b.run(t, c.name, c.script)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s prints %q; want %q", c.name, out, want)
			}
		}
		if !slices.ContainsFunc(refusals(records), func(r task.EgressRecord) bool {
			return r.Name == c.host && r.Method == c.method && r.Reason == task.PolicyDenied
		}) {
			t.Errorf("%s: no refusal of %s %s: %+v", c.name, c.method, c.host, records)
		}
	}
}
