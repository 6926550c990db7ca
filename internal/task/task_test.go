package task

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestStateMoves(t *testing.T) {
	states := []State{"", Queued, Running, Waiting, Succeeded, Failed, StateCancelled}
	allowed := map[string]bool{
		" queued": true, "queued running": true, "queued failed": true, "queued cancelled": true,
		"running waiting": true, "running succeeded": true, "running failed": true, "running cancelled": true,
		"waiting running": true, "waiting succeeded": true, "waiting failed": true, "waiting cancelled": true,
	}
	for _, from := range states {
		for _, to := range states {
			move := fmt.Sprintf("%s %s", from, to)
			if got := from.CanBecome(to); got != allowed[move] {
				t.Errorf("%q: %v, want %v", move, got, allowed[move])
			}
		}
		if from.Ended() != strings.Contains("succeeded failed cancelled", string(from)) && from != "" {
			t.Errorf("%q ended: %v", from, from.Ended())
		}
	}
}

func TestReasonOf(t *testing.T) {
	for want, err := range map[Reason]error{
		InfraVault: fmt.Errorf("around: %w", Fail(InfraVault, "x", nil)), LimitSpend: errors.Join(errors.New("other"), Fail(LimitSpend, "", nil)),
		ReasonNone: errors.New("infra.vault"),
	} {
		if got := ReasonOf(err); got != want {
			t.Errorf("%v: %q", err, got)
		}
	}
	if got := ReasonOf(nil); got != ReasonNone {
		t.Errorf("nil: %q", got)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		class  string
		retry  bool
		code   int
	}{
		{ReasonNone, "", false, 0},
		{AgentFailed, "agent", false, 10},
		{VerifyFailed, "verify", false, 11},
		{PatchFailed, "verify", false, 11},
		{PolicyDenied, "policy", false, 12},
		{LimitMemory, "limit", false, 13},
		{ApprovalExpired, "approval", false, 14},
		{InfraWorkerLost, "infra", true, 15},
		{InfraExhausted, "infra", false, 15},
		{Cancelled, "cancelled", false, 16},
		{CheckoutFailed, "checkout", false, 17},
		{SetupFailed, "setup", false, 17},
		{InputPolicy, "input", false, 2},
		{ExportFailed, "export", false, 1},
		{"unheard.of", "unheard", false, 1},
	} {
		if c.reason.Class() != c.class || c.reason.Retryable() != c.retry || c.reason.ExitCode() != c.code {
			t.Errorf("%q: class %q, retryable %v, exit code %d; want %q, %v, %d",
				c.reason, c.reason.Class(), c.reason.Retryable(), c.reason.ExitCode(), c.class, c.retry, c.code)
		}
	}
}

func TestZeroValuesRefuse(t *testing.T) {
	var v Verdict
	if v != Denied || v.String() != "denied" || Verdict(7).String() != "denied" || Allowed.String() != "allowed" {
		t.Error("a verdict that was never given does not deny")
	}
	if len(Grant{}.Rules) != 0 {
		t.Error("the zero grant reaches something")
	}
}

func TestLimitsAreNeverUnlimited(t *testing.T) {
	d := DefaultLimits().OfSandbox()
	if got := (Limits{}).WithDefaults(); got != d {
		t.Errorf("the zero limits become %+v, want %+v", got, d)
	}
	negative := Limits{MilliCPU: -1, Memory: -1, PIDs: -1, Disk: -1, Output: -1, Time: -1}
	if got := negative.WithDefaults(); got != d {
		t.Errorf("negative limits become %+v, want %+v", got, d)
	}
	set := Limits{MilliCPU: 1, Memory: 2, PIDs: 3, Disk: 4, Inodes: 7, Files: 8, Output: 5, Time: 6, Names: 9, Connections: 10}
	if got := set.WithDefaults(); got != set {
		t.Errorf("%+v becomes %+v", set, got)
	}
	if patch, kept, files := (Limits{Patch: -1, Kept: 7}).OfOutputs(); patch != DefaultLimits().Patch || kept != 7 || files != DefaultLimits().KeptFiles {
		t.Errorf("limits of outputs are %d, %d and %d", patch, kept, files)
	}
}

func TestFailureCarriesItsCause(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("thing: %w", Fail(LimitDisk, "no room", cause))
	var f *Failure
	if !errors.As(err, &f) || f.Reason != LimitDisk || !errors.Is(err, cause) || f.Error() != "limit.disk: no room: cause" {
		t.Errorf("%v", err)
	}
}
