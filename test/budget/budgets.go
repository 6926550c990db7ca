package main

import (
	"strings"
	"time"
)

// suite is how long a suite may take on two cores, builds included.
type suite struct {
	total    time.Duration
	each     time.Duration            // a package without a budget of its own
	packages map[string]time.Duration // by the end of their import path
}

// suites are the budgets of what CI runs; all of it has 90 minutes, of which the
// fuzzing that follows takes seven.
func suites() map[string]suite {
	return map[string]suite{
		"unit":   {total: 5 * time.Minute, each: 10 * time.Second, packages: map[string]time.Duration{"internal/fleet": 30 * time.Second, "internal/stage/temporal": 30 * time.Second, "internal/guest/host": 30 * time.Second}},
		"engine": {total: 6 * time.Minute, each: 3 * time.Minute},
		"root": {total: 58 * time.Minute, each: 30 * time.Second, packages: map[string]time.Duration{
			"test/e2e": 35 * time.Minute, "test/mutants": 10 * time.Minute, "internal/sandbox/gvisor": 6 * time.Minute, "internal/stage/temporal": time.Minute, "internal/egress": time.Minute, "internal/stage/steps": 45 * time.Second, "internal/supervise": 2 * time.Minute,
		}},
	}
}

// of is the budget of a package.
func (s suite) of(pkg string) time.Duration {
	for end, budget := range s.packages {
		if pkg == end || strings.HasSuffix(pkg, "/"+end) {
			return budget
		}
	}
	return s.each
}
