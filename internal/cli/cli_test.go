package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/progress"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The exit codes of the command line are those of the reasons.
func TestExitCodesAreThoseOfTheReasons(t *testing.T) {
	for _, r := range []task.Reason{
		task.ReasonNone, task.InfraWorkerLost, task.InfraSandboxLost, task.InfraSandboxCreate, task.InfraEgressRestarted, task.InfraEgressAway,
		task.InfraControlAway, task.InfraStorage, task.InfraInternal, task.InfraExhausted, task.InputInvalid, task.InputPolicy,
		task.InputRepository, task.InputConflict, task.InputNotFound, task.InputUnauthed, task.LimitTime, task.LimitMemory, task.LimitPIDs,
		task.LimitDisk, task.LimitOutput, task.LimitNames, task.LimitConnections, task.LimitSize, task.PolicyDenied, task.PolicyAddress,
		task.PolicyNameMismatch, task.PolicyProtocol, task.EgressUnresolved, task.EgressUnreachable, task.EgressUntrusted, task.CheckoutFailed, task.SetupFailed,
		task.AgentFailed, task.ExportFailed, task.VerifyFailed, task.PatchFailed, task.ApprovalExpired, task.Cancelled, "nonsense.code",
	} {
		if got, want := api.ExitCode(string(r)), r.ExitCode(); got != want {
			t.Errorf("%s: %d, want %d", r, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "512m": 512 << 20, "4G": 4 << 30, "1.5k": 1536, "2GiB": 2 << 30, "10kb": 10 << 10, "1t": 1 << 40, "": 0} {
		if got, err := parseSize("--x", text); err != nil || got != want {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"b", "k", "-1", "0", "1x", "NaN", "inf", "9999999t", "1 k"} {
		if got, err := parseSize("--x", text); err == nil {
			t.Errorf("%q: taken as %d", text, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1200: "1.2 kB", 999_900: "1.0 MB", 12_000_000: "12 MB", 3 << 30: "3.2 GB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]int64{"1.5": 1500, "0.25": 250, "": 0} {
		if got, err := parseCPUs(text); err != nil || got != want {
			t.Errorf("cpus %q: %d %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "NaN", "x"} {
		if _, err := parseCPUs(text); err == nil {
			t.Errorf("cpus %q: taken", text)
		}
	}
}

// On a terminal the stage that runs stands below what is done, and lines of
// the agent don't mix with it.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	p := progress.New(&out, true)
	p.Stage(api.Stage{Name: "agent", State: "running"})
	w := p.Through()
	for _, s := range []string{"half ", "line\nnext", " one\n"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	p.Stage(api.Stage{Name: "agent", State: "failed", Reason: "agent.failed", Text: "x\x1by"})
	p.Done()
	got := out.String()
	for _, want := range []string{"half line\n", "next one\n", "failed, agent.failed: x\\x1by\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.HasSuffix(got, "· agent") || !strings.Contains(got, "\r\x1b[K") {
		t.Errorf("the unfinished line stays: %q", got)
	}
}
