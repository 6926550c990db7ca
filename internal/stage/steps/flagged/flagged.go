// Package flagged has the patch of a task judged before it is on record, and says
// what the findings come to.
package flagged

import (
	"context"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Patch judges the stored patch and writes what was found into its output. What is
// returned is the fact for the account. An empty patch is not even opened.
func Patch(ctx context.Context, blobs stage.Blobs, judge stage.PatchJudge, rules task.FlagRules, o *task.Output) (fact.PatchFlagged, error) {
	report := task.FlagReport{Verdict: task.FlagAllow}
	if o.Size > 0 {
		from, err := blobs.Open(ctx, o.Digest)
		if err != nil {
			return fact.PatchFlagged{}, err
		}
		defer func() { _ = from.Close() }() // it was only read
		if report, err = judge.Judge(ctx, from, rules); err != nil {
			return fact.PatchFlagged{}, err
		}
	}
	f := fact.PatchFlagged{Patch: o.Digest, Verdict: report.Verdict, Flags: []fact.Flagged{}, Findings: len(report.Findings), More: report.More}
	for _, flag := range report.Flags {
		o.Flags = append(o.Flags, string(flag))
		f.Flags = append(f.Flags, fact.Flagged{Flag: flag, Verdict: rules.Verdict(flag)})
	}
	o.Findings, o.Verdict = report.Findings, report.Verdict
	var err error
	f.Digest, err = fact.Digest(append([]task.Finding{}, report.Findings...))
	return f, err
}

// Refusal is why the task ends with this patch; nil when it goes on.
func Refusal(o task.Output, rules task.FlagRules) error {
	if o.Verdict != task.FlagRefuse {
		return nil
	}
	var refused []string
	for _, k := range task.FlagKinds() {
		for _, flag := range o.Flags {
			if flag == string(k.Flag) && rules.Verdict(k.Flag) == task.FlagRefuse {
				refused = append(refused, flag)
			}
		}
	}
	first := ""
	for _, f := range o.Findings {
		if f.Verdict == task.FlagRefuse {
			first = fmt.Sprintf("; the first: %s %s: %s", f.ID, f.Path, f.Why)
			break
		}
	}
	return task.Fail(task.PolicyOutput, "the patch has what the policy refuses (output.flags): "+strings.Join(refused, ", ")+
		first+" The patch is kept, and `cofferdam task show` lists what was found", nil)
}
