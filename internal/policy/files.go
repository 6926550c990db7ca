package policy

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// fileRules are the file rules of a layer, with the line of each path.
type fileRules struct {
	task.FileRules
	lines map[string]int
}

func (r *reader) fileRules(n *yaml.Node, path string) fileRules {
	f := fileRules{lines: map[string]int{}}
	list := func(to *[]string) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) {
			r.list(n, p, func(n *yaml.Node, p string) {
				name := r.path(n, p)
				if line, twice := f.lines[name]; twice && name != "" {
					r.errorf(n, p, "%q is said on line %d already; one of writable, readonly and hidden can hold", name, line)
					return
				}
				f.lines[name] = n.Line
				*to = append(*to, name)
			})
		}
	}
	r.fields(n, path, fieldReaders{"writable": list(&f.Writable), "readonly": list(&f.ReadOnly), "hidden": list(&f.Hidden)})
	return f
}

// path reads a path of the workspace.
func (r *reader) path(n *yaml.Node, field string) string {
	p := strings.TrimSuffix(n.Value, "/")
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str" || p == "" || p == ".":
		r.errorf(n, field, "must be a path of the workspace, such as src/generated")
	case strings.ContainsAny(p, "*?["):
		r.errorf(n, field, "%q has a pattern; name each file or folder, which stands for all beneath it", n.Value)
	case strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../") || path.Clean(p) != p:
		r.errorf(n, field, "%q must be relative to the workspace and clean, without \"..\"; write %q", n.Value, strings.TrimLeft(path.Clean("/"+p), "/"))
	case len(p) > 1024 || strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f }):
		r.errorf(n, field, "is longer than 1024 bytes or has control characters")
	case strings.EqualFold(p, ".git"):
		r.errorf(n, field, "\".git\" itself can't be ruled, git needs it; name what is in it, such as .git/config")
	default:
		return p
	}
	return ""
}

// beneath says whether p is dir or lies in it, on a file system that folds
// case as well.
func beneath(p, dir string) bool {
	p, dir = strings.ToLower(p), strings.ToLower(dir)
	return p == dir || strings.HasPrefix(p, dir+"/")
}

func beneathAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return beneath(p, dir) })
}

// mergeFiles puts the layers' file rules together. What a higher layer closed
// stays closed; closing is always possible.
func (s *stack) mergeFiles() task.FileRules {
	var sum task.FileRules
	for _, f := range []*file{&s.project, &s.task} {
		for _, p := range f.files.Writable {
			s.mayWiden(f, p, sum)
		}
		for _, p := range f.files.ReadOnly {
			if beneathAny(p, sum.Hidden) {
				s.refuse(f, f.files.lines[p], "files.readonly", "%q lies in what a higher layer hides; leave it out", p)
			}
		}
		sum = addFiles(sum, f.files.FileRules)
	}
	if s.repository.work != nil {
		sum = s.repositoryFiles(sum)
	}
	return sum
}

// mayWiden refuses a writable path that a higher layer keeps closed.
func (s *stack) mayWiden(f *file, p string, above task.FileRules) {
	if beneathAny(p, above.ReadOnly) || beneathAny(p, above.Hidden) {
		s.refuse(f, f.files.lines[p], "files.writable", "%q lies in what a higher layer keeps read-only or hidden; leave it out", p)
	}
	for _, widened := range (task.FileRules{Writable: []string{p}}).Widened() {
		for _, upper := range s.above(f) {
			if widen := upper.ceiling.widen; widen != nil && !beneathAny(widened, widen) {
				s.refuse(f, f.files.lines[p], "files.writable", "%q takes the protection of %q away, which the %s (ceiling, line %d) doesn't let; leave it out", p, widened, upper.name, upper.ceiling.line)
			}
		}
	}
}

// addFiles adds a lower layer's rules: what it closes takes away what a higher
// one had opened there.
func addFiles(sum, more task.FileRules) task.FileRules {
	closed := func(p string) bool { return beneathAny(p, more.ReadOnly) || beneathAny(p, more.Hidden) }
	hidden := func(p string) bool { return beneathAny(p, more.Hidden) }
	out := task.FileRules{
		Writable: slices.Concat(slices.DeleteFunc(slices.Clone(sum.Writable), closed), more.Writable),
		ReadOnly: slices.Concat(slices.DeleteFunc(slices.Clone(sum.ReadOnly), hidden), more.ReadOnly),
		Hidden:   slices.Concat(sum.Hidden, more.Hidden),
	}
	for _, list := range []*[]string{&out.Writable, &out.ReadOnly, &out.Hidden} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
		if len(*list) == 0 {
			*list = nil
		}
	}
	return out
}

// repositoryFiles adds what the repository closes, where the task and the
// project don't say otherwise. It never opens anything.
func (s *stack) repositoryFiles(sum task.FileRules) task.FileRules {
	f := &s.repository
	var more task.FileRules
	for _, p := range f.files.Writable {
		s.narrow(f.files.lines[p], "files.writable", "%q: a repository can't take protections away", p)
	}
	for _, list := range []struct {
		field    string
		from     []string
		to       *[]string
		conflict []string
	}{
		{"files.readonly", f.files.ReadOnly, &more.ReadOnly, slices.Concat(sum.Writable, sum.Hidden)},
		{"files.hidden", f.files.Hidden, &more.Hidden, sum.Writable},
	} {
		for _, p := range list.from {
			if slices.ContainsFunc(list.conflict, func(q string) bool { return beneath(p, q) || beneath(q, p) }) {
				s.narrow(f.files.lines[p], list.field, "%q: a higher layer or the task says otherwise", p)
				continue
			}
			*list.to = append(*list.to, p)
		}
	}
	return addFiles(sum, more)
}
