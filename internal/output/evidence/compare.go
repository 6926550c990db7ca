package evidence

import "github.com/cofferdam/cofferdam/internal/output/report"

// Comparison is what the run with the patch says differently than the run of the
// base. A test is in one list at most.
type Comparison struct {
	BasePassed   bool `json:"basePassed"`   // the command ended well on the base
	NewlyFailing List `json:"newlyFailing"` // bad with the patch, and not bad or not there on the base
	NewlyPassing List `json:"newlyPassing"` // bad on the base, and passed with the patch
	StillFailing List `json:"stillFailing"` // bad in both
	NewlySkipped List `json:"newlySkipped"` // ran on the base, and was skipped with the patch
	Removed      List `json:"removed"`      // on the base, and not there with the patch
	NotRun       List `json:"notRun"`       // the same, of suites that failed as a whole, or where a limit ended the run
	Added        List `json:"added"`        // with the patch, and not there on the base
}

// tests compares two reports. Cut says that the run with the patch was ended
// early; flaky are tests that nothing can be said of.
func (c *Comparison) tests(base, now report.Report, cut bool, flaky map[[2]string]bool) {
	before, after := index(base), index(now)
	suites := map[string]bool{} // of now; true: failed as a whole
	for _, t := range now.List {
		suites[t.Suite] = suites[t.Suite] || t.Name == ""
	}
	for _, t := range now.List {
		if flaky[key(t)] {
			continue
		}
		was, known := before[key(t)]
		switch {
		case t.Outcome.Bad() && known && was.Outcome.Bad():
			c.StillFailing.add(t)
		case t.Outcome.Bad():
			c.NewlyFailing.add(t)
		case !known:
			c.Added.add(t)
		case t.Outcome == report.Skipped && was.Outcome != report.Skipped:
			c.NewlySkipped.add(t)
		case t.Outcome == report.Passed && was.Outcome.Bad():
			c.NewlyPassing.add(t)
		}
	}
	for _, t := range base.List {
		if _, there := after[key(t)]; there {
			continue
		}
		whole, ran := suites[t.Suite]
		t.Message = ""
		switch {
		case t.Name == "" && (ran || t.Suite == ""):
			c.NewlyPassing.add(t)
		case whole || suites[""] || cut:
			c.NotRun.add(t)
		default:
			c.Removed.add(t)
		}
	}
}
