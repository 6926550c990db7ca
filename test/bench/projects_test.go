//go:build bench

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// project is a real one: what is done with it is the same inside and outside.
// Paths are relative to a folder that holds bundle and cache.
type project struct {
	name    string
	prepare func(b *bench, dir string) // makes dir/bundle and fills dir/cache
	env     []string                   // $TOP is the folder
	steps   []step
}

type step struct{ name, script string }

// The versions that are measured. What they need for their tests is what their
// own files ask for.
const (
	goProject   = "github.com/spf13/cobra@v1.10.1"
	nodeProject = "qs@6.13.0"
)

var projects = []project{
	{
		name: "Go, " + goProject, prepare: (*bench).prepareGo,
		env: []string{"GOMODCACHE=$TOP/cache/mod", "GOCACHE=$TOP/cache/build", "GOPROXY=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local", "CGO_ENABLED=0"},
		steps: []step{
			{"clone", "git clone -q bundle src"},
			{"install", "cd src && go mod download && go mod verify >/dev/null"},
			{"build", "cd src && go build ./... && go vet ./..."},
			// FailGen: these tests expect that they are not run by root.
			{"test", "cd src && go test -count=1 -skip FailGen ./..."},
		},
	},
	{
		name: "Node, " + nodeProject, prepare: (*bench).prepareNode,
		env: []string{"npm_config_cache=$TOP/cache/npm", "npm_config_update_notifier=false"},
		steps: []step{
			{"clone", "git clone -q bundle src"},
			{"install", "cd src && npm ci --offline --ignore-scripts --no-audit --no-fund --silent"},
			{"build", "cd src && mkdir -p dist && npx --no-install browserify --standalone Qs lib/index.js > dist/built.js"},
			{"test", "cd src && npx --no-install tape 'test/**/*.js' >out || { tail -20 out; exit 1; }"},
		},
	},
}

// host runs a script on the host, with the environment of a project.
func (b *bench) host(dir, script string, env ...string) {
	b.t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	for _, e := range env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(e, "$TOP", dir))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// toBundle makes a repository of the folder, and a bundle of it.
const toBundle = ` && git init -q -b main && git add -A && git -c user.name=b -c user.email=b@example.com commit -qm base && git bundle create -q ../bundle HEAD main`

func (b *bench) prepareGo(dir string) {
	cmd := exec.Command("go", "mod", "download", "-json", goProject)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMODCACHE="+dir+"/cache/mod", "GOFLAGS=-modcacherw")
	out, err := cmd.Output()
	b.must(err)
	var module struct{ Dir string }
	b.must(json.Unmarshal(out, &module))
	b.host(dir, "cp -r '"+module.Dir+"' first && cd first && go mod download"+toBundle, "GOMODCACHE=$TOP/cache/mod", "GOFLAGS=-modcacherw")
}

// unneeded is what the Node project's release and lint need; some of it comes from
// forges, which a registry's cache does not hold.
var unneeded = []string{
	"devDependencies.common-shakeify", "devDependencies.bundle-collapser", "devDependencies.@browserify/envify",
	"devDependencies.@browserify/uglifyify", "devDependencies.evalmd", "devDependencies.npmignore", "devDependencies.safe-publish-latest",
	"devDependencies.jackspeak", "devDependencies.in-publish", "devDependencies.glob", "devDependencies.nyc",
	"devDependencies.@ljharb/eslint-config", "devDependencies.eslint", "devDependencies.unassertify", "devDependencies.mkdirp",
}

func (b *bench) prepareNode(dir string) {
	b.host(dir, "npm pack --silent "+nodeProject+" >/dev/null && tar xzf *.tgz && mv package first && cd first && rm -f .npmrc && "+
		"npm pkg delete "+strings.Join(unneeded, " ")+" && "+
		"npm install --ignore-scripts --no-audit --no-fund --loglevel=error && rm -rf node_modules && printf 'node_modules\\n' > .gitignore"+toBundle,
		"npm_config_cache=$TOP/cache/npm", "npm_config_update_notifier=false")
}

// projects does the steps inside and outside in turn, after a first round that
// warms both.
func (b *bench) projects() []row {
	var rows []row
	for i, p := range projects {
		dir := filepath.Join(b.dir, fmt.Sprintf("project%d", i))
		b.must(os.MkdirAll(dir, 0o755))
		p.prepare(b, dir)
		b.host(dir, "rm -rf first && tar cf ../project.tar bundle cache")
		box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
		b.must(err)
		file, err := os.Open(filepath.Join(b.dir, "project.tar"))
		b.must(err)
		b.must(b.e.Client.PutFiles(b.ctx, box.ID, "/workspace/p", file))
		file.Close()
		ours, peer := map[string]figure{}, map[string]figure{}
		for round := range 4 {
			var in, out time.Duration
			for _, s := range p.steps {
				start := time.Now()
				b.host(dir, s.script, p.env...)
				native := time.Since(start)
				inside := b.inside(box.ID, p, s)
				in, out = in+inside, out+native
				if round > 0 {
					ours[s.name], peer[s.name] = append(ours[s.name], inside), append(peer[s.name], native)
				}
			}
			if round > 0 {
				ours[""], peer[""] = append(ours[""], in), append(peer[""], out)
			}
			b.host(dir, "rm -rf src")
			b.inside(box.ID, p, step{"remove", "rm -rf src"})
		}
		b.must(b.e.Client.RemoveSandbox(b.ctx, box.ID))
		b.t.Log(p.name, "ours", ours, "native", peer)
		rows = append(rows, row{p.name + ": clone, install, build, test, against native", ours[""].String(), peer[""].String(), ratio(ours[""], peer[""]), "≤ 1.3 ×"})
		for _, s := range p.steps {
			rows = append(rows, row{"– " + s.name, ours[s.name].String(), peer[s.name].String(), ratio(ours[s.name], peer[s.name]), "–"})
		}
	}
	return rows
}

func (b *bench) inside(id string, p project, s step) time.Duration {
	b.t.Helper()
	var env []string
	for _, e := range p.env {
		env = append(env, strings.ReplaceAll(e, "$TOP", "/workspace/p"))
	}
	var out bytes.Buffer
	start := time.Now()
	status, err := b.e.Client.Run(b.ctx, id, api.ExecRequest{
		Argv: append(append([]string{"env"}, env...), "bash", "-c", s.script), Dir: "/workspace/p",
	}, &out, &out)
	b.must(err)
	took := time.Since(start)
	if status.ExitCode != 0 {
		b.t.Fatalf("%s inside: %+v\n%s", s.script, status, out.String())
	}
	return took
}

// images waits until sandboxes stand on images, since that is what is measured; a
// machine that can't make them is measured as it is.
func (b *bench) images() {
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
		b.must(err)
		status, err := b.e.Client.Run(b.ctx, box.ID, api.ExecRequest{Argv: []string{"grep", "-q", " /usr erofs ", "/proc/mounts"}}, io.Discard, io.Discard)
		b.must(err)
		b.must(b.e.Client.RemoveSandbox(b.ctx, box.ID))
		if status.ExitCode == 0 {
			return
		}
		if time.Now().After(end) {
			fmt.Println("sandboxes have no root images here; see cofferdam doctor")
			return
		}
	}
}
