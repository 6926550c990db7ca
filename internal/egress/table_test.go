package egress

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The table of kinds of credentials and faults: for every kind, whatever goes
// wrong, no server outside sees the real value, and the program inside reads why
// not. What goes out is looked at by real servers on loopback, what is lent
// comes from a control plane over HTTP by way of the real lender.

// faults are the columns of the table, in the words of its requirement.
func faults() []string {
	return []string{
		"wrong host", "wrong port", "method", "path", "plain http", "redirect", "kept-alive switch", "h2 :authority", "spoofed Host",
		"bad certificate", "expired", "revoked while streaming", "control plane away",
	}
}

// cell is what is tried, or why there is nothing to try.
type cell struct {
	run  func(t *testing.T)
	none string
}

// tableRow is one kind, in one of the ways in which requests carry it.
type tableRow struct {
	kind, as string
	cells    map[string]cell
}

func table(t *testing.T) []tableRow {
	rows := []tableRow{postgresRow()}
	for _, k := range webKinds() {
		rows = append(rows, k.row())
	}
	return rows
}

func TestKindsAndFaults(t *testing.T) {
	for _, row := range table(t) {
		t.Run(row.kind+row.as, func(t *testing.T) {
			t.Parallel()
			for _, fault := range faults() {
				if c := row.cells[fault]; c.run != nil {
					t.Run(fault, c.run)
				}
			}
		})
	}
}

// kindsThereAre reads them where they are said, so that one more is seen here.
func kindsThereAre(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../task/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, kindsOf(t, file)...)
	}
	return kinds
}

// kindsOf are the texts of the constants of one file whose names say so.
func kindsOf(t *testing.T, file *ast.File) (kinds []string) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Kind") {
			return true
		}
		if text, ok := spec.Values[0].(*ast.BasicLit); ok {
			kind, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, kind)
		}
		return true
	})
	return kinds
}

// The table is whole: a kind has a row, and each row tries each fault or says why
// there is none.
func TestTableIsWhole(t *testing.T) {
	rows := table(t)
	kinds := kindsThereAre(t)
	if len(kinds) < 11 {
		t.Errorf("only these kinds were found: %v", kinds)
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(rows, func(r tableRow) bool { return r.kind == kind }) {
			t.Errorf("the kind %s has no row", kind)
		}
	}
	for _, row := range rows {
		if !slices.Contains(kinds, row.kind) {
			t.Errorf("the row %s is of no kind", row.kind)
		}
		for _, fault := range faults() {
			if c, ok := row.cells[fault]; !ok || (c.run == nil) == (c.none == "") {
				t.Errorf("%s%s: the fault %q is neither tried nor said to have no meaning", row.kind, row.as, fault)
			}
		}
		for fault := range row.cells {
			if !slices.Contains(faults(), fault) {
				t.Errorf("%s%s: the fault %q is in no column", row.kind, row.as, fault)
			}
		}
	}
}
