package task

// Verifying is what policy says of how a patch is verified. The zero value is the
// default.
type Verifying struct {
	Compare string `json:"compare,omitempty"` // "base" or "none"; empty: base where the task names a report
	Rerun   string `json:"rerun,omitempty"`   // "once" or "none"; empty: once
	Flaky   string `json:"flaky,omitempty"`   // "fails" or "passes"; empty: fails
}

// Compares says whether the verify command runs on the base commit by itself, too.
func (v Verifying) Compares(report string) bool {
	return v.Compare == "base" || v.Compare == "" && report != ""
}

// Reruns says whether a verify command that failed runs once more.
func (v Verifying) Reruns() bool { return v.Rerun != "none" }

// FlakyPasses says whether a verify command that failed and then passed counts as
// one that passed.
func (v Verifying) FlakyPasses() bool { return v.Flaky == "passes" }
