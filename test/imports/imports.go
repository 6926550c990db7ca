// Package imports checks the direction rules of the house: what a room may
// import, and what a program may not reach. It parses the sources in its own
// process, since the result of a go list run would be cached by go test while
// the sources change.
//
// Words. A room is a folder below internal/ (or api, client); its rule names
// the rooms and the foreign modules it may import directly. A program is a
// folder below cmd/; its rule names what it may not reach over any number of
// imports. Test files are not looked at: a test may know both sides.
package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Module is the path of the module the rules are about.
const Module = "github.com/cofferdam/cofferdam"

// Room is what one room may import directly.
type Room struct {
	Rooms   []string // folders of ours; a name covers the folders below it; "." is the room itself
	Foreign []string // module path prefixes; "std" is implied
	Not     []string // standard packages the room may not use, since it does no I/O
	Any     bool     // foreign modules are not restricted
}

// Program is what one program may not reach.
type Program struct {
	Not []string // folders of ours or module path prefixes
}

// Check returns one line per violation, sorted. Every folder with Go files
// below internal/ must have a room, the longest matching name; every folder in
// cmd/ must have a program.
func Check(tree fs.FS, rooms map[string]Room, programs map[string]Program) ([]string, error) {
	t, err := parse(tree)
	if err != nil {
		return nil, err
	}
	var found []string
	for dir, p := range t {
		found = append(found, checkRoom(dir, p, rooms)...)
		found = append(found, checkState(dir, p)...)
	}
	for dir := range t {
		if path.Dir(dir) != "cmd" {
			continue
		}
		rule, ok := programs[path.Base(dir)]
		if !ok {
			found = append(found, dir+": no rule for this program")
			continue
		}
		found = append(found, t.reach(dir, rule)...)
	}
	sort.Strings(found)
	return found, nil
}

// folder is the parsed sources of one folder.
type folder struct {
	imports map[string]bool
	files   []*ast.File
}

type sources map[string]*folder

func parse(tree fs.FS) (sources, error) {
	t := sources{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || nested(tree, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if t[dir] == nil {
			t[dir] = &folder{imports: map[string]bool{}}
		}
		t[dir].files = append(t[dir].files, file)
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			t[dir].imports[p] = true
		}
		return nil
	})
	return t, err
}

// nested says whether the folder is a module of its own.
func nested(tree fs.FS, name string) bool {
	_, err := fs.Stat(tree, path.Join(name, "go.mod"))
	return err == nil && name != "."
}

func checkRoom(dir string, p *folder, rooms map[string]Room) []string {
	name, rule, ok := roomOf(dir, rooms)
	if !ok {
		if strings.HasPrefix(dir, "internal/") || dir == "api" || dir == "client" {
			return []string{dir + ": no rule for this room"}
		}
		return nil
	}
	var found []string
	for imp := range p.imports {
		ours, own := strings.CutPrefix(imp, Module+"/")
		switch {
		case own && !(within(ours, name) || slices.ContainsFunc(rule.Rooms, func(r string) bool { return within(ours, r) })):
			found = append(found, fmt.Sprintf("%s: imports %s, which is not among its rooms", dir, ours))
		case own:
		case foreign(imp) && !rule.Any && !slices.ContainsFunc(rule.Foreign, func(f string) bool { return within(imp, f) }):
			found = append(found, fmt.Sprintf("%s: imports %s, which is not among its modules", dir, imp))
		case slices.Contains(rule.Not, imp):
			found = append(found, fmt.Sprintf("%s: imports %s, but does no I/O", dir, imp))
		}
	}
	return found
}

func roomOf(dir string, rooms map[string]Room) (string, Room, bool) {
	for d := dir; d != "." && d != "/"; d = path.Dir(d) {
		if rule, ok := rooms[d]; ok {
			return d, rule, true
		}
	}
	return "", Room{}, false
}

// checkState finds init functions and package-level variables that hold state.
// Allowed are values nobody changes: errors, patterns, embedded files, and
// assertions that a type implements an interface.
func checkState(dir string, p *folder) []string {
	if !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") && dir != "client" && dir != "api" {
		return nil
	}
	var found []string
	for _, file := range p.files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					found = append(found, dir+": has an init function")
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && (d.Doc == nil || !strings.Contains(d.Doc.Text()+directives(d.Doc), "go:embed")) {
					found = append(found, stateful(dir, d)...)
				}
			}
		}
	}
	return found
}

func directives(doc *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range doc.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

func stateful(dir string, d *ast.GenDecl) []string {
	var found []string
	for _, s := range d.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || v.Doc != nil && strings.Contains(directives(v.Doc), "go:embed") {
			continue
		}
		for i, name := range v.Names {
			if name.Name != "_" && (i >= len(v.Values) || !constant(v.Values[i])) {
				found = append(found, fmt.Sprintf("%s: package-level variable %s may hold state", dir, name.Name))
			}
		}
	}
	return found
}

// constant says whether an initialiser makes a value that is only read.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.CompositeLit:
		return true
	case *ast.UnaryExpr: // a sentinel such as &task.Failure{…}.
		_, literal := e.X.(*ast.CompositeLit)
		return literal && e.Op == token.AND
	case *ast.BinaryExpr:
		return constant(e.X) && constant(e.Y)
	case *ast.CallExpr:
		switch f := e.Fun.(type) {
		case *ast.SelectorExpr:
			pkg, _ := f.X.(*ast.Ident)
			return pkg != nil && slices.Contains([]string{
				"errors.New", "fmt.Errorf", "regexp.MustCompile", "netip.MustParseAddr", "netip.MustParsePrefix", "netip.AddrFrom4", "netip.AddrFrom16", "tcpip.AddrFrom4",
				"crc32.MakeTable", "base32.NewEncoding", "lipgloss.NewStyle", "big.NewInt",
				"tcpip.AddrFromSlice", "tcpip.AddrFrom16", "strings.NewReplacer", "reflect.TypeFor",
			}, pkg.Name+"."+f.Sel.Name)
		case *ast.ArrayType:
			return true
		case *ast.Ident: // a conversion such as Digest("…") or prefixes("…").
			return slices.ContainsFunc([]string{"must", "prefixes"}, func(s string) bool { return strings.HasPrefix(f.Name, s) })
		}
	case *ast.SelectorExpr: // base32.StdEncoding and its like.
		return true
	}
	return false
}

// reach follows the imports of ours from a program and reports what it may not
// reach, with the way there.
func (t sources) reach(dir string, rule Program) []string {
	var found []string
	from := map[string]string{dir: ""}
	queue := []string{dir}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if t[at] == nil {
			continue
		}
		list := make([]string, 0, len(t[at].imports))
		for imp := range t[at].imports {
			list = append(list, imp)
		}
		sort.Strings(list)
		for _, imp := range list {
			name := strings.TrimPrefix(imp, Module+"/")
			if _, seen := from[name]; seen {
				continue
			}
			from[name] = at
			if slices.ContainsFunc(rule.Not, func(n string) bool { return within(name, n) }) {
				found = append(found, fmt.Sprintf("%s: reaches %s by %s", dir, name, way(from, name)))
				continue
			}
			if name != imp {
				queue = append(queue, name)
			}
		}
	}
	return found
}

func way(from map[string]string, to string) string {
	var steps []string
	for at := to; at != ""; at = from[at] {
		steps = append(steps, at)
	}
	slices.Reverse(steps)
	return strings.Join(steps, " → ")
}

func within(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }

// foreign says whether an import path is of another module; standard packages
// have no dot in their first element.
func foreign(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return strings.Contains(first, ".") && !within(imp, Module)
}
