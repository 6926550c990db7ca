package api

// Verification is what was verified of a task's patch: output evidence, read. An
// approval that covers its digest covers all of it.
type Verification struct {
	Digest  string `json:"digest" doc:"Of the bytes of output evidence."`
	Problem string `json:"problem,omitempty" doc:"Why the rest is empty."`

	Version string `json:"version,omitempty" doc:"Of the form of the evidence."`
	Base    string `json:"base,omitempty" doc:"The commit that the patch is for."`
	Patch   string `json:"patch,omitempty" doc:"Digest of the patch."`
	Setup   string `json:"setup,omitempty"`
	Command string `json:"command,omitempty"`
	Report  string `json:"report,omitempty" doc:"The file that the command's report was read from; - is its output."`

	Outcome    string          `json:"outcome,omitempty" doc:"passed, failed, or flaky: it failed, and passed when it was run again."`
	Passes     bool            `json:"passes" doc:"Whether the task goes on. A flaky one does where policy says so."`
	Reason     string          `json:"reason,omitempty"`
	Runs       []VerifyRun     `json:"runs" nullable:"false" doc:"patch judges; again is the same once more, after it failed; base is the base commit by itself."`
	Flaky      *TestNames      `json:"flaky,omitempty" doc:"Tests that patch and again say differently."`
	Comparison *TestComparison `json:"comparison,omitempty" doc:"What patch says differently than base."`
	Uncompared string          `json:"uncompared,omitempty" doc:"Why there is no comparison where one was asked for."`
	Findings   []TestFinding   `json:"findings,omitempty" nullable:"false" doc:"What the patch does to files of tests that may weaken them, by plain rules about lines."`
	More       int             `json:"more,omitempty" doc:"Findings that are not listed."`
	Unreadable string          `json:"unreadable,omitempty" doc:"Why there are no findings."`
	Flags      []string        `json:"flags" nullable:"false" doc:"newly-failing, newly-skipped, removed-tests, weakened-tests, flaky, disagrees, uncompared, unreadable."`
}

// VerifyRun is one run of the verify command in a fresh sandbox.
type VerifyRun struct {
	Run      string      `json:"run" doc:"patch, again or base."`
	ExitCode *int        `json:"exitCode,omitempty"`
	Reason   string      `json:"reason,omitempty" doc:"Empty: it ended well."`
	Text     string      `json:"text,omitempty"`
	Form     string      `json:"form,omitempty" doc:"Of its report: junit, go test -json, tap or pytest."`
	Tests    *TestCounts `json:"tests,omitempty"`
	Foreign  int         `json:"foreign,omitempty" doc:"Lines of the report that were not understood."`
	Problem  string      `json:"problem,omitempty" doc:"Why there are no tests."`
	Whole    string      `json:"whole" doc:"Digest of output tests.RUN, which has every test."`
}

// TestCounts are how many tests ended how.
type TestCounts struct {
	Tests    int `json:"tests"`
	Failures int `json:"failures"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`
}

// TestNames is some tests: how many there are, and the first of them.
type TestNames struct {
	Count int        `json:"count"`
	First []TestName `json:"first,omitempty" nullable:"false"`
}

// TestName is one test. Without a name it is its suite as a whole. Names and messages
// come from the report; what is no printable character is an escape.
type TestName struct {
	Suite   string `json:"suite,omitempty"`
	Name    string `json:"name,omitempty"`
	Message string `json:"message,omitempty"`
}

// TestComparison is what two reports say differently.
type TestComparison struct {
	BasePassed   bool      `json:"basePassed" doc:"The command ended well on the base."`
	NewlyFailing TestNames `json:"newlyFailing"`
	NewlyPassing TestNames `json:"newlyPassing"`
	StillFailing TestNames `json:"stillFailing"`
	NewlySkipped TestNames `json:"newlySkipped"`
	Removed      TestNames `json:"removed" doc:"On the base, and not there with the patch."`
	NotRun       TestNames `json:"notRun" doc:"The same, of suites that failed as a whole, or where a limit ended the run."`
	Added        TestNames `json:"added"`
}

// TestFinding is what the patch does to one file of tests.
type TestFinding struct {
	Kind    string `json:"kind" doc:"file-removed, tests-dropped, assertions-dropped, skips-added or focus-added."`
	Path    string `json:"path" doc:"As git writes names."`
	Removed int    `json:"removed" doc:"Lines of that kind."`
	Added   int    `json:"added"`
}
