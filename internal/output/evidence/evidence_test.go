package evidence

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/task"
)

// said builds a report from "suite/name=outcome" words.
func said(t *testing.T, words string) *report.Report {
	t.Helper()
	var b report.Builder
	for _, word := range strings.Fields(words) {
		name, outcome, _ := strings.Cut(word, "=")
		suite, name, _ := strings.Cut(name, "/")
		if err := b.Take(report.Test{Suite: suite, Name: name, Outcome: report.Outcome(outcome)}); err != nil {
			t.Fatal(err)
		}
	}
	r := b.Report("test")
	return &r
}

func ended(t *testing.T, run string, exit int, words string) *Run {
	r := &Run{Run: run, ExitCode: &exit}
	if exit != 0 {
		r.Reason = task.VerifyFailed
	}
	if words != "none" {
		r.Tests = said(t, words)
	}
	return r
}

func names(l List) string {
	var out []string
	for _, t := range l.First {
		out = append(out, t.Suite+"/"+t.Name)
	}
	return strings.Join(out, " ")
}

func TestComparison(t *testing.T) {
	for name, c := range map[string]struct {
		base, now string
		exit      int
		want      Comparison // as names
		lists     string     // failing | passing | still | skipped | removed | notrun | added
		flags     string
	}{
		"fixed":            {base: "p/A=failed p/B=passed", now: "p/A=passed p/B=passed", lists: "|p/A|||||"},
		"broken":           {base: "p/A=passed", now: "p/A=failed", exit: 1, lists: "p/A||||||", flags: "newly-failing"},
		"new and broken":   {base: "p/A=passed", now: "p/A=passed p/B=error", exit: 1, lists: "p/B||||||", flags: "newly-failing"},
		"still":            {base: "p/A=failed", now: "p/A=error", exit: 1, lists: "||p/A||||"},
		"removed":          {base: "p/A=failed p/B=passed", now: "p/B=passed", lists: "||||p/A||", flags: "removed-tests"},
		"removed, all":     {base: "p/A=failed", now: "q/B=passed", lists: "||||p/A||q/B", flags: "removed-tests"},
		"skipped":          {base: "p/A=failed p/B=skipped", now: "p/A=skipped p/B=skipped", lists: "|||p/A|||", flags: "newly-skipped"},
		"run again":        {base: "p/A=skipped", now: "p/A=passed", lists: "||||||"},
		"added":            {base: "p/A=passed", now: "p/A=passed p/B=passed p/C=skipped", lists: "||||||p/B p/C"},
		"no longer builds": {base: "p/A=passed q/B=passed", now: "p/=error q/B=passed", exit: 1, lists: "p/|||||p/A|", flags: "newly-failing"},
		"builds now":       {base: "p/=error", now: "p/A=passed", lists: "|p/|||||p/A"},
		"a cut run":        {base: "p/A=passed q/B=passed", now: "/=error q/B=passed", exit: 1, lists: "/|||||p/A|", flags: "newly-failing"},
		"disagrees":        {base: "p/A=failed", now: "p/A=failed", lists: "||p/A||||", flags: "disagrees"},
	} {
		e := New(Input{Compares: true, Report: "r", Judge: *ended(t, Patch, c.exit, c.now), Before: ended(t, Base, 1, c.base)})
		if e.Comparison == nil {
			t.Errorf("%s: uncompared: %s", name, e.Uncompared)
			continue
		}
		var got []string
		for _, l := range []List{e.Comparison.NewlyFailing, e.Comparison.NewlyPassing, e.Comparison.StillFailing, e.Comparison.NewlySkipped, e.Comparison.Removed, e.Comparison.NotRun, e.Comparison.Added} {
			got = append(got, names(l))
		}
		if strings.Join(got, "|") != c.lists || strings.Join(e.Flags, " ") != c.flags {
			t.Errorf("%s: %q, flags %q", name, strings.Join(got, "|"), e.Flags)
		}
	}
}

func TestOutcomes(t *testing.T) {
	fails, passes := ended(t, Again, 1, "p/A=failed p/B=failed p/C=passed"), ended(t, Again, 0, "p/A=passed p/B=passed p/C=passed")
	base := ended(t, Base, 0, "p/A=passed p/B=passed p/C=passed")
	for name, c := range map[string]struct {
		in      Input
		outcome string
		passes  bool
		flaky   string
		flags   []string
	}{
		"passed":              {Input{Judge: *passes}, "passed", true, "", nil},
		"failed twice":        {Input{Judge: *fails, Again: fails}, "failed", false, "", nil},
		"failed, not again":   {Input{Judge: *fails}, "failed", false, "", nil},
		"flaky":               {Input{Judge: *fails, Again: passes}, "flaky", false, "p/A p/B", []string{FlagFlaky}},
		"flaky, which counts": {Input{Judge: *fails, Again: passes, FlakyPasses: true, Compares: true, Report: "r", Before: base}, "flaky", true, "p/A p/B", []string{FlagFlaky}},
		"one of two is flaky": {Input{Judge: *fails, Again: ended(t, Again, 1, "p/A=passed p/B=failed"), Compares: true, Report: "r", Before: base}, "failed", false, "p/A", []string{FlagNewlyFailing}},
		"no base":             {Input{Judge: *passes, Compares: true, Uncompared: "why"}, "passed", true, "", []string{FlagUncompared}},
		"base does not build": {Input{Judge: *passes, Compares: true, Report: "r", Before: &Run{Run: Base, Reason: task.SetupFailed, Text: "exited with 1"}}, "passed", true, "", []string{FlagUncompared}},
		"no report":           {Input{Judge: *ended(t, Patch, 0, "none"), Compares: true, Report: "r", Before: base}, "passed", true, "", []string{FlagUncompared}},
		"exit codes alone":    {Input{Judge: *ended(t, Patch, 0, "none"), Compares: true, Before: ended(t, Base, 1, "none")}, "passed", true, "", nil},
		"findings":            {Input{Judge: *passes, Findings: Findings{List: []Finding{{Kind: FileRemoved}}}}, "passed", true, "", []string{FlagWeakened}},
		"unreadable":          {Input{Judge: *passes, Findings: Findings{Problem: "line 1"}}, "passed", true, "", []string{FlagUnreadable}},
	} {
		e := New(c.in)
		flaky := ""
		if e.Flaky != nil {
			flaky = names(*e.Flaky)
		}
		if e.Outcome != c.outcome || e.Passes != c.passes || flaky != c.flaky || !slices.Equal(e.Flags, c.flags) && len(e.Flags)+len(c.flags) > 0 {
			t.Errorf("%s: %s, %v, flaky %q, flags %q (%s)", name, e.Outcome, e.Passes, flaky, e.Flags, e.Uncompared)
		}
	}
}

// The bytes are bounded and say the same of the same.
func TestCanonicalBytes(t *testing.T) {
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "p/%s%d=failed ", strings.Repeat("x", 240), i)
	}
	in := Input{Base: "c", Patch: "sha256:p", Command: "a && <b>", Compares: true, Report: "r", Judge: *ended(t, Patch, 1, many.String()), Before: ended(t, Base, 0, "p/A=passed")}
	one, err := New(in).Canonical()
	if err != nil {
		t.Fatal(err)
	}
	in.Judge.DurationMS, in.Judge.Round, in.Judge.Attempt = 99, 2, 2
	two, _ := New(in).Canonical()
	if string(one) != string(two) {
		t.Error("what took another time has other bytes")
	}
	in.Command = "a && <c>"
	if other, _ := New(in).Canonical(); string(other) == string(one) {
		t.Error("another command has the same bytes")
	}
	if len(one) > 1<<18 || !strings.Contains(string(one), "a && <b>") || !strings.Contains(string(one), `"newlyFailing":{"count":5000`) {
		t.Errorf("%d bytes: %.300s", len(one), one)
	}
}
