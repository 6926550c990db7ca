//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// tally answers each verify command once with 500 and then with 200, task by task.
type tally struct {
	mu    sync.Mutex
	port  int
	asked map[string]int
}

func tallying(t *testing.T) *tally {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &tally{port: l.Addr().(*net.TCPAddr).Port, asked: map[string]int{}}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asked[r.URL.Path]++; c.asked[r.URL.Path] == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return c
}

func (c *tally) of(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[path]
}

// judgedIn is how often the receipt's records tell of a verification, and of which
// evidence its body does.
func judgedIn(t *testing.T, e *testenv.Env, id string) (judged int, evidence string) {
	t.Helper()
	text, err := e.Client.Receipt(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	var receipt struct {
		Records []struct{ Kind string }
		Body    struct{ Verified struct{ Evidence string } }
	}
	if err := json.Unmarshal(text, &receipt); err != nil {
		t.Fatal(err)
	}
	for _, r := range receipt.Records {
		if r.Kind == "verify.judged" {
			judged++
		}
	}
	return judged, receipt.Body.Verified.Evidence
}

func first(l api.TestNames) string {
	var names []string
	for _, n := range l.First {
		names = append(names, n.Suite+"."+n.Name)
	}
	return strings.Join(names, " ")
}

// A real project of Go is mended, another patch takes the failing test away, and a
// test that fails once in a while is told from one that fails. The evidence says so,
// and the receipt covers it.
func TestVerificationIsComparedWithTheBase(t *testing.T) {
	count := tallying(t)
	ns := testenv.Names(t, map[string]string{"counter.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS:            ns.Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: counter.test, ports: [%d]}\n", count.port),
	})
	source := bundle(t, e, repo(t, map[string]string{
		"go.mod":      "module example.com/sum\n\ngo 1.21\n",
		"sum.go":      "package sum\n\nfunc Sum(a, b int) int { return a - b }\n",
		"sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif got := Sum(1, 2); got != 3 {\n\t\tt.Errorf(\"1+2 is %d\", got)\n\t}\n}\n\nfunc TestZero(t *testing.T) {\n\tif Sum(0, 0) != 0 {\n\t\tt.Error(\"no\")\n\t}\n}\n",
	}))
	before := e.Census()
	request := func(agent string) api.TaskRequest {
		return api.TaskRequest{Repo: source, Agent: sh(agent), Verify: "go test -json ./...", Report: "-"}
	}

	id := submit(t, e, request("sed -i 's/a - b/a + b/' sum.go")).ID
	got := e.WaitTask(id, 5*patience)
	must(t, e, got, api.Succeeded, "")
	v := got.Verification
	if v == nil || v.Comparison == nil || v.Outcome != "passed" || v.Comparison.BasePassed || first(v.Comparison.NewlyPassing) != "example.com/sum.TestSum" || len(v.Flags) != 0 {
		t.Fatalf("a test that was mended: %+v", v)
	}
	if text, err := e.CLI("task", "show", id); err != nil || !strings.Contains(text, "1 newly passing compared with the base") || !strings.Contains(text, v.Digest) {
		t.Errorf("show: %v\n%s", err, text)
	}
	if text, err := e.CLI("output", "get", id, "evidence"); err != nil || !strings.Contains(text, `"newlyPassing":{"count":1`) || !strings.Contains(text, got.Commit) {
		t.Errorf("evidence: %v\n%s", err, text)
	}
	if judged, digest := judgedIn(t, e, id); judged != 1 || digest != v.Digest {
		t.Errorf("the receipt tells %d times, of %s", judged, digest)
	}

	got = e.WaitTask(submit(t, e, request(`printf 'package sum\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {\n\tif Sum(0, 0) != 0 {\n\t\tt.Error("no")\n\t}\n}\n' > sum_test.go`)).ID, 5*patience)
	must(t, e, got, api.Succeeded, "")
	v = got.Verification
	if v == nil || v.Comparison == nil || first(v.Comparison.Removed) != "example.com/sum.TestSum" || !slices.Equal(v.Flags, []string{"removed-tests", "weakened-tests"}) || len(v.Findings) != 2 {
		t.Errorf("a test that was taken away: %+v", v)
	}

	flaky := func(path, setting string) api.Task {
		policy := fmt.Sprintf("version: 1\nverify: {%snetwork: {allow: [{host: counter.test, ports: [%d]}]}}\n", setting, count.port)
		return run(t, e, api.TaskRequest{
			Repo: source, Policy: policy, Agent: sh("echo x > y"), Report: "-",
			Verify: fmt.Sprintf("if curl -sf -m 20 http://counter.test:%d%s; then echo 'ok 1 - net'; else echo 'not ok 1 - net'; fi | tee said; echo 1..1; grep -q ^ok said", count.port, path),
		})
	}
	got = flaky("/fails", "compare: none, ")
	must(t, e, got, api.Failed, "verify.failed")
	if v = got.Verification; v == nil || v.Outcome != "flaky" || v.Passes || v.Flaky == nil || first(*v.Flaky) != ".net" || count.of("/fails") != 2 {
		t.Errorf("flaky: %+v, asked %d times", v, count.of("/fails"))
	}
	got = flaky("/passes", "compare: none, flaky: passes, ")
	must(t, e, got, api.Succeeded, "")
	if v = got.Verification; v == nil || v.Outcome != "flaky" || !v.Passes || count.of("/passes") != 2 {
		t.Errorf("flaky, which counts: %+v, asked %d times", v, count.of("/passes"))
	}
	e.Unchanged(before)
}

// The control plane is killed while each run of the verify command is under way.
// Each is made once, and told once.
func TestKilledWhileItVerifies(t *testing.T) {
	count := tallying(t)
	ns := testenv.Names(t, map[string]string{"counter.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS:            ns.Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: counter.test, ports: [%d]}\n", count.port),
	})
	before := e.Census()
	const path = "/killed"
	id := submit(t, e, api.TaskRequest{
		Repo: bundle(t, e, small(t)), Agent: sh("echo 43 > answer.txt"), Report: "-",
		Policy: fmt.Sprintf("version: 1\nverify: {network: {allow: [{host: counter.test, ports: [%d]}]}}\n", count.port),
		Verify: fmt.Sprintf("echo said; curl -s -m 60 http://counter.test:%d%s; sleep 3; if ./check.sh; then echo 'ok 1 - check'; else echo 'not ok 1 - check'; fi; echo 1..1; ./check.sh", count.port, path),
	}).ID
	for runs := 1; runs <= 3; runs++ {
		testenv.Until(t, patience, fmt.Sprintf("run %d", runs), func() bool { return count.of(path) >= runs })
		kill(t, e, "cofferdamd")
	}
	got := e.WaitTask(id, 2*patience)
	must(t, e, got, api.Failed, "verify.failed")
	v := got.Verification
	if v == nil || len(v.Runs) != 3 || v.Outcome != "failed" || v.Comparison == nil || first(v.Comparison.StillFailing) != ".check" {
		t.Errorf("verification %+v", v)
	}
	if n := count.of(path); n != 3 {
		t.Errorf("the verify command ran %d times", n)
	}
	for _, stage := range []string{"verify", "verify.again", "verify.base"} {
		if text := log(t, e, id, stage); strings.Count(text, "said\n") != 1 || strings.Count(text, "1..1\n") != 1 {
			t.Errorf("log.%s is %q", stage, text)
		}
	}
	names := map[string]int{}
	for _, o := range got.Outputs {
		names[o.Name]++
	}
	for _, name := range []string{"evidence", "report", "tests.patch", "tests.again", "tests.base"} {
		if names[name] != 1 {
			t.Errorf("output %s is there %d times", name, names[name])
		}
	}
	if judged, digest := judgedIn(t, e, id); judged != 1 || v != nil && digest != v.Digest {
		t.Errorf("the receipt tells %d times, of %s", judged, digest)
	}
	e.Unchanged(before)
}
