package problem

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Every reason code of package task has its own line in the table, and the
// exit codes of api are those of task.
func TestEveryReasonHasAStatus(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../task/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	table, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[string]bool{}
	ast.Inspect(table, func(n ast.Node) bool {
		if fn, ok := n.(*ast.FuncDecl); ok && fn.Name.Name != "statusOf" {
			return false
		}
		if sel, ok := n.(*ast.SelectorExpr); ok {
			inTable[sel.Sel.Name] = true
		}
		return true
	})
	seen := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		code, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if api.ExitCode(code) != task.Reason(code).ExitCode() {
			t.Errorf("%s: exit code %d in api, %d in task", code, api.ExitCode(code), task.Reason(code).ExitCode())
		}
		if code != "" && !inTable[spec.Names[0].Name] {
			t.Errorf("%s has no line in statusOf", spec.Names[0].Name)
		}
		if st := statusOf(task.Reason(code)); st < 400 || st > 599 {
			t.Errorf("%s: status %d", code, st)
		}
		return true
	})
	if seen < 30 {
		t.Errorf("only %d codes found", seen)
	}
}
