//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// row is one line of the table.
type row struct{ what, ours, peer, ratio, bar string }

// figure is the samples of one measured thing.
type figure []time.Duration

func (f figure) p(q float64) time.Duration {
	s := slices.Sorted(slices.Values(f))
	return s[min(int(float64(len(s))*q), len(s)-1)]
}

func (f figure) String() string {
	return fmt.Sprintf("%.1f ms (p90 %.1f)", ms(f.p(0.5)), ms(f.p(0.9)))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(a, b figure) string { return fmt.Sprintf("%.2f ×", ms(a.p(0.5))/ms(b.p(0.5))) }

type bench struct {
	t   *testing.T
	e   *testenv.Env
	bin string
	ctx context.Context
	dir string
}

// TestBench runs everything and prints the table.
func TestBench(t *testing.T) {
	stream := download(t)
	e := testenv.Start(t, testenv.Config{
		DNS:            testenv.Names(t, map[string]string{"stream.test.": "127.0.0.1"}).Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: stream.test, ports: [%d]}\n", stream),
	})
	b := &bench{t: t, e: e, bin: testenv.Bin(t), ctx: t.Context(), dir: t.TempDir()}
	// Plain runsc pins a network namespace of its gofers by a mount.
	t.Cleanup(func() { syscall.Unmount(filepath.Join(b.dir, "state", "null-netns"), syscall.MNT_DETACH) })
	b.images()
	var rows []row
	only := os.Getenv("COFFERDAM_BENCH") // one of the names below; empty: all
	for _, part := range []struct {
		name    string
		measure func() []row
	}{
		{"create", b.create},
		{"exec", b.exec},
		{"many", b.many},
		{"idle", b.idle},
		{"idle500", b.idle500},
		{"gateway", func() []row { return b.gateway(stream) }},
		{"task", b.task},
		{"intercept", b.intercept},
		{"projects", b.projects},
		{"agents", b.agents},
	} {
		if only == "" || only == part.name {
			rows = append(rows, part.measure()...)
		}
	}

	fmt.Print("\n" + printed(rows) + "\n")
}

// printed is the table of the rows.
func printed(rows []row) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d cores, %s\n\n", kernel(), runtime.NumCPU(), time.Now().UTC().Format("2006-01-02"))
	out.WriteString("| what | ours (median) | peer, same run (median) | ratio | bar |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", r.what, r.ours, r.peer, r.ratio, r.bar)
	}
	return out.String()
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(text))
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// create measures from the request to the first byte of a command's output.
func (b *bench) create() []row {
	keep, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
	b.must(err)
	defer b.e.Client.RemoveSandbox(b.ctx, keep.ID)
	var ours, runsc, bwrap figure
	for i := range 22 {
		start := time.Now()
		box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
		b.must(err)
		b.echo(box.ID)
		took := time.Since(start)
		b.must(b.e.Client.RemoveSandbox(b.ctx, box.ID))

		peer := b.firstByte(b.runscRun(keep.ID, fmt.Sprintf("peer%02d", i), "none", "/bin/echo", "hi"))
		floor := b.firstByte(exec.Command("bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "/bin/echo", "hi"))
		if i >= 2 { // the first ones warm the caches
			ours, runsc, bwrap = append(ours, took), append(runsc, peer), append(bwrap, floor)
		}
	}
	return []row{
		{"create → first output, cold, against `runsc run` of the same bundle", ours.String(), runsc.String(), ratio(ours, runsc), "≤ 1.3 ×"},
		{"the same against `bwrap`", ours.String(), bwrap.String(), ratio(ours, bwrap), "– (the bar is for the warm pool)"},
	}
}

func (b *bench) echo(id string) {
	b.t.Helper()
	res, err := b.e.Client.Exec(b.ctx, id, api.ExecRequest{Argv: []string{"/bin/echo", "hi"}, Wait: true})
	b.must(err)
	if !res.Done || len(res.Output) == 0 || res.Output[0].Text != "hi\n" {
		b.t.Fatalf("echo in %s: %+v", id, res)
	}
}

// firstByte starts the command and returns when it has written something.
func (b *bench) firstByte(cmd *exec.Cmd) time.Duration {
	b.t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	b.must(err)
	start := time.Now()
	b.must(cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1))
	took := time.Since(start)
	if err != nil {
		b.t.Fatalf("%v: no output: %v\n%s", cmd.Args, err, errs.String())
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		b.t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.String())
	}
	return took
}

// runscRun is `runsc run` of the bundle of a live sandbox of ours, with another
// command, disk folder and cgroup.
func (b *bench) runscRun(box, id, network string, argv ...string) *exec.Cmd {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.e.Data, "worker", "sandboxes", box, "bundle", "config.json"))
	b.must(err)
	var spec map[string]any
	b.must(json.Unmarshal(text, &spec))
	spec["process"].(map[string]any)["args"] = argv
	linux := spec["linux"].(map[string]any)
	linux["cgroupsPath"] = "/cfdbench-" + id
	var namespaces []any
	for _, ns := range linux["namespaces"].([]any) {
		if ns.(map[string]any)["type"] != "network" {
			namespaces = append(namespaces, ns)
		}
	}
	if network == "none" {
		namespaces = append(namespaces, map[string]any{"type": "network"})
	}
	linux["namespaces"] = namespaces
	dir := filepath.Join(b.dir, id)
	b.must(os.MkdirAll(filepath.Join(dir, "disk"), 0o700))
	text, err = json.Marshal(spec)
	b.must(err)
	b.must(os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	return exec.Command(filepath.Join(b.bin, "runsc"), "--root="+filepath.Join(b.dir, "state"), "--platform=systrap", "--network="+network,
		"--overlay2=root:dir="+filepath.Join(dir, "disk")+",size=1073741824", "--host-settings=ignore", "run", "--bundle", dir, id)
}

// exec measures a command in a live sandbox.
func (b *bench) exec() []row {
	box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
	b.must(err)
	defer b.e.Client.RemoveSandbox(b.ctx, box.ID)
	var ours, peer figure
	for i := range 110 {
		start := time.Now()
		b.echo(box.ID)
		took := time.Since(start)
		start = time.Now()
		out, err := exec.Command(filepath.Join(b.bin, "runsc"), "--root="+filepath.Join(b.e.Data, "worker", "runsc"), "exec", box.ID, "/bin/echo", "hi").Output()
		if err != nil || string(out) != "hi\n" {
			b.t.Fatalf("runsc exec: %v %q", err, out)
		}
		if i >= 10 {
			ours, peer = append(ours, took), append(peer, time.Since(start))
		}
	}
	return []row{{"exec round trip over the API against `runsc exec`", ours.String(), peer.String(), ratio(ours, peer), "≤ 0.3 ×"}}
}

// many measures 50 creates at once against as many one after the other.
func (b *bench) many() []row {
	const n = 50
	one := func() time.Duration {
		start := time.Now()
		box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
		b.must(err)
		took := time.Since(start)
		b.must(b.e.Client.RemoveSandbox(b.ctx, box.ID))
		return took
	}
	var each figure
	for range 10 {
		each = append(each, one())
	}
	var wg sync.WaitGroup
	ids, errs := make([]string, n), make([]error, n)
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
			ids[i], errs[i] = box.ID, err
		})
	}
	wg.Wait()
	took := time.Since(start)
	failed := 0
	for i := range n {
		if errs[i] != nil {
			failed++
			continue
		}
		b.must(b.e.Client.RemoveSandbox(b.ctx, ids[i]))
	}
	sum := time.Duration(n) * each.p(0.5)
	return []row{{fmt.Sprintf("50 creates at once (%d failed) against 50 in sequence", failed), fmt.Sprintf("%.0f ms", ms(took)), fmt.Sprintf("%.0f ms", ms(sum)), fmt.Sprintf("%.2f ×", ms(took)/ms(sum)), "≤ 0.8 ×"}}
}

const size = 400 << 20

// download starts a server of zeros on the loopback.
func download(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// gateway measures a download through the gateway against one by the same
// client in gVisor with the host's network.
func (b *bench) gateway(port int) []row {
	policy := fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: stream.test, ports: [%d]}]}}\n", port)
	box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{Policy: policy})
	b.must(err)
	defer b.e.Client.RemoveSandbox(b.ctx, box.ID)
	script := func(host string) []string {
		return []string{"sh", "-c", fmt.Sprintf("curl -s -o /dev/null -w '%%{size_download} %%{time_total}' http://%s:%d/", host, port)}
	}
	speed := func(text string) time.Duration {
		var n int64
		var s float64
		if _, err := fmt.Sscan(text, &n, &s); err != nil || n != size {
			b.t.Fatalf("the download says %q", text)
		}
		return time.Duration(s * float64(time.Second))
	}
	var ours, peer figure
	for i := range 7 {
		var out bytes.Buffer
		_, err := b.e.Client.Run(b.ctx, box.ID, api.ExecRequest{Argv: script("stream.test")}, &out, io.Discard)
		b.must(err)
		text, err := b.runscRun(box.ID, fmt.Sprintf("net%02d", i), "host", script("127.0.0.1")...).Output()
		b.must(err)
		if i > 0 {
			ours, peer = append(ours, speed(out.String())), append(peer, speed(string(text)))
		}
	}
	rate := func(f figure) string { return fmt.Sprintf("%.0f MB/s", size/1e6/f.p(0.5).Seconds()) }
	return []row{{"download through the gateway against host networking in gVisor", rate(ours), rate(peer), fmt.Sprintf("%.2f ×", peer.p(0.5).Seconds()/ours.p(0.5).Seconds()), "≥ 0.7 ×"}}
}

// task measures a task of empty stages against the sandbox operations it
// consists of, done one after the other over the API.
func (b *bench) task() []row {
	repo := filepath.Join(b.dir, "repo")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", repo},
		{"-C", repo, "-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-q", "--allow-empty", "-m", "base"},
		{"-C", repo, "bundle", "create", "-q", filepath.Join(b.dir, "bundle"), "HEAD", "main"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			b.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	file, err := os.ReadFile(filepath.Join(b.dir, "bundle"))
	b.must(err)
	blob, err := b.e.Client.UploadBundle(b.ctx, bytes.NewReader(file), int64(len(file)))
	b.must(err)
	var ours, sum figure
	for i := range 8 {
		start := time.Now()
		t, _, err := b.e.Client.CreateTask(b.ctx, api.TaskRequest{Repo: api.Repo{Bundle: blob.Digest}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}}, "")
		b.must(err)
		done := time.Time{}
		b.must(b.e.Client.WatchTask(b.ctx, t.ID, 0, func(ev api.Event) error { done = ev.Time; return nil }))
		took := time.Since(start)
		_ = done
		operations := b.operations(t.ID)
		if i > 0 {
			ours, sum = append(ours, took), append(sum, operations)
		}
	}
	return []row{{"a task of empty stages against the sum of its sandbox operations", ours.String(), sum.String(), ratio(ours, sum), "≤ 1.5 ×"}}
}

// operations does what an empty task does to sandboxes: two are made and
// removed (the agent's and the one that makes the patch), the repository is
// checked out in both, and the patch is made.
func (b *bench) operations(task string) time.Duration {
	b.t.Helper()
	file := filepath.Join(b.dir, "tar")
	if out, err := exec.Command("tar", "-C", b.dir, "-cf", file, "bundle").CombinedOutput(); err != nil {
		b.t.Fatalf("tar: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	b.must(err)
	run := func(id, script string) {
		status, err := b.e.Client.Run(b.ctx, id, api.ExecRequest{Argv: []string{"sh", "-c", script}}, io.Discard, io.Discard)
		b.must(err)
		if status.ExitCode != 0 {
			b.t.Fatalf("%s: %+v", script, status)
		}
	}
	start := time.Now()
	for range 2 {
		box, err := b.e.Client.CreateSandbox(b.ctx, api.SandboxRequest{})
		b.must(err)
		b.must(b.e.Client.PutFiles(b.ctx, box.ID, "/tmp/in", bytes.NewReader(text)))
		run(box.ID, "git clone -q /tmp/in/bundle /workspace && git -C /workspace rev-parse HEAD")
		run(box.ID, "cd /workspace && git bundle create -q /tmp/base HEAD && git add -A && git diff --cached --binary HEAD")
		body, err := b.e.Client.GetFiles(b.ctx, box.ID, "/workspace")
		b.must(err)
		_, err = io.Copy(io.Discard, body)
		b.must(err)
		body.Close()
		b.must(b.e.Client.RemoveSandbox(b.ctx, box.ID))
	}
	return time.Since(start)
}
