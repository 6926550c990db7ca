// Package secrets finds what looks like a key or a password in text, by the rules of
// gitleaks.
//
// Words. A rule is one of gitleaks' own, by its id. What was found is never given
// on, only the rule and the line: this package is where it ends.
//
// A comment in the text that asks gitleaks to look away is not obeyed, since who
// wrote it may be hostile, and neither are gitleaks' lists of files that need no
// look: no file's name is given to it.
//
// Not promised: that a secret is found. The rules know shapes of keys and words
// around them; what is split, encoded or without a shape passes.
package secrets

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/cofferdam/cofferdam/internal/output/flags"
)

// Finder finds secrets. It is safe for concurrent use; one text is looked at at a
// time, so that tasks that end together take one processor. The rules are read at
// the first use. The zero value is ready.
type Finder struct {
	mu       sync.Mutex
	detector *detect.Detector
}

// Find implements flags.Secrets.
func (f *Finder) Find(ctx context.Context, text string) (found []flags.Secret, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		if fault := recover(); fault != nil { // the text is hostile, and the rules are others'
			found, err = nil, fmt.Errorf("gitleaks: a fault (%T)", fault)
		}
	}()
	if f.detector == nil {
		if f.detector, err = detect.NewDetectorDefaultConfig(); err != nil {
			return nil, fmt.Errorf("gitleaks: the rules: %w", err)
		}
		f.detector.IgnoreGitleaksAllow = true
	}
	for _, x := range f.detector.DetectContext(ctx, detect.Fragment{Raw: text}) {
		found = append(found, flags.Secret{Rule: x.RuleID, Line: x.StartLine + 1})
	}
	slices.SortFunc(found, func(a, b flags.Secret) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule)) })
	return slices.Compact(found), nil
}
