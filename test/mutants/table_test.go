package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is one fault, planted in one place.
type mutant struct {
	name     string
	file     string // of the project
	old, new string // old stands there exactly once
	tests    string // the package whose tests must go red
}

func mutants() []mutant {
	return []mutant{
		{
			"grant defaults to allow", "internal/policy/decide/decide.go",
			"\td := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}", "\td := task.Decision{Verdict: task.Allowed}", "./internal/policy/...",
		},
		{
			"the zero verdict allows", "internal/task/grant.go",
			"Denied  Verdict = 0\n\tAllowed Verdict = 1", "Denied  Verdict = 1\n\tAllowed Verdict = 0", "./internal/policy",
		},
		{
			"address check skipped", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "./internal/egress",
		},
		{
			"second dial to another address", "internal/egress/connection.go",
			"\tconn, to, err := c.way.gateway.dial(ctx, addresses,",
			"\tif again, err := c.way.gateway.options.Resolver.Lookup(ctx, c.name); err == nil && len(again) > 0 {\n\t\taddresses = again\n\t}\n\tconn, to, err := c.way.gateway.dial(ctx, addresses,",
			"./internal/egress",
		},
		{
			"verify reuses the agent's sandbox", "internal/stage/rules.go",
			"\tsum := sha256.Sum256(fmt.Appendf(nil, \"%s|%d|%s\", taskID, attempt, role))",
			"\tif role == RoleVerify {\n\t\trole = RoleAgent\n\t}\n\tsum := sha256.Sum256(fmt.Appendf(nil, \"%s|%d|%s\", taskID, attempt, role))",
			"./internal/stage/...",
		},
		{
			"a call that was started is started again under another name", "internal/agent/loop/calls.go",
			"\treturn w.run.command(ctx, w.row.Command, argv, limit, out)",
			"\treturn w.run.command(ctx, fmt.Sprintf(\"%s.%d\", w.row.Command, len(w.run.turns)), argv, limit, out)", "./internal/agent/loop",
		},
		{
			"an answer is not recorded", "internal/agent/loop/loop.go",
			"\treturn answer, r.Turns.SetTurn(ctx, r.job.Task, r.job.Attempt, t)", "\treturn answer, nil", "./internal/agent/loop",
		},
		{
			"the sandbox is given the model", "internal/stage/steps/loop.go",
			"if rule.ID == stage.ModelRule {", "if rule.ID == \"\" {", "./internal/stage/steps",
		},
		{
			"injection is switched off", "internal/egress/outbound/loan.go",
			"\treturn l.carrier.put(l.lease, l.value, out)", "\treturn nil", "./internal/egress",
		},
		{
			"a lease's own binding is not looked at", "internal/egress/outbound/gate.go",
			"if d.Verdict == task.Allowed && d.Credential == credential {", "if d.Verdict <= task.Allowed {", "./internal/egress",
		},
		{
			"a placeholder passes anywhere", "internal/egress/outbound/gate.go",
			"if slices.ContainsFunc(standIns(&g.Grant.Leases[i]), rest.holds) {", "if slices.ContainsFunc(standIns(&g.Grant.Leases[i])[:0], rest.holds) {", "./internal/egress",
		},
		{
			"a length beside chunks passes", "internal/egress/strict/head.go",
			"case f.chunked && f.length >= 0:", "case false:", "./internal/egress/strict",
		},
		{
			"a decision is not recorded before the dial", "internal/egress/connection.go",
			"\tif err := c.way.records.Append(rec); err != nil {", "\tif err := error(nil); err != nil {", "./internal/egress",
		},
		{
			"an answer for one use is used twice", "internal/store/approvals/approvals.go",
			"if took = r.UsedBy == by; took ||", "if took = r.UsedBy != \"\"; took ||", "./internal/store/approvals",
		},
		{
			"what passes under a decision that is taken back goes on", "internal/egress/way.go",
			"w.cutUnder(takenBack(before, grant))", "w.cutUnder(nil)", "./internal/egress",
		},
		{
			"a value opens under another binding", "internal/credential/seal/seal.go",
			"func Bound(c task.Credential) ([]byte, error) {\n", "func Bound(c task.Credential) ([]byte, error) {\n\tif c.Name != \"\" {\n\t\treturn nil, nil\n\t}\n", "./internal/credential",
		},
		{
			"a value is lent to any sandbox", "internal/credential/leases.go",
			"if have.Sandbox != sandbox || !have.Active() ||", "if !have.Active() ||", "./internal/credential",
		},
		{
			"what was renewed and not written back is lent", "internal/credential/login/login.go",
			"return tokens.Tokens{}, task.Fail(task.InfraCredential, fmt.Sprintf(\"credential %q: the login of %s was renewed", "return kept, nil // ", "./internal/credential/login",
		},
		{
			"a login asks for another account", "internal/egress/outbound/carrier_login.go",
			"values[0] != l.Settings[task.SettingAccount]", "false", "./internal/egress/outbound",
		},
		{
			"a value is lent to another machine's gateway", "internal/server/credentials/credentials.go",
			"err == nil && !holds:", "err == nil && !holds && r.Lease == \"\":", "./internal/server/credentials",
		},
		{
			"a lease outlives its stage", "internal/stage/steps/run.go",
			"r.Leases.End(ctx, r.in.Task, r.row.Sandbox, task.EndedStage), r.abandon(ctx))", "r.abandon(ctx))", "./internal/stage/steps",
		},
	}
}

// A mutant that has lost its place plants nothing. This runs with every unit
// test, so that it is seen in the change that moved the place.
func TestPlaces(t *testing.T) {
	for _, m := range mutants() {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if n := strings.Count(string(text), m.old); err != nil || n != 1 {
			t.Errorf("%s: its place stands %d times in %s, want once (%v)", m.name, n, m.file, err)
		}
	}
}
