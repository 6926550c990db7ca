package flags

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nameRule is about files by their names, which are written folded. A name may have
// folders ahead of it; dirs stand for all beneath them; both are found at any depth.
type nameRule struct {
	id, why string
	names   []string // "*" is any run of characters within a name
	dirs    []string
	gone    bool // removing such a file matters as well
}

// names finds the rules of a name.
type names struct {
	rules []nameRule
	exact map[string][]int // by last name
	globs []glob
	dirs  map[string][]dir // by first name
}

type glob struct {
	pattern string
	rule    int
}

type dir struct {
	parts []string
	rule  int
}

func newNames(rules []nameRule) names {
	n := names{rules: rules, exact: map[string][]int{}, dirs: map[string][]dir{}}
	for i, r := range rules {
		for _, name := range r.names {
			switch base := path.Base(name); {
			case strings.Contains(name, "*"):
				n.globs = append(n.globs, glob{name, i})
			case base != name:
				parts := strings.Split(name, "/")
				n.dirs[parts[0]] = append(n.dirs[parts[0]], dir{parts, i})
			default:
				n.exact[name] = append(n.exact[name], i)
			}
		}
		for _, name := range r.dirs {
			parts := strings.Split(name, "/")
			n.dirs[parts[0]] = append(n.dirs[parts[0]], dir{append(parts, ""), i})
		}
	}
	return n
}

// of are the rules that a folded name meets. special is a link or a submodule,
// which stands for whatever may lie beneath it.
func (n names) of(parts []string, special bool) []nameRule {
	var hit []int
	base := parts[len(parts)-1]
	hit = append(hit, n.exact[base]...)
	for _, g := range n.globs {
		if ok, err := path.Match(g.pattern, base); err == nil && ok {
			hit = append(hit, g.rule)
		}
	}
	for i, part := range parts {
		for _, d := range n.dirs[part] {
			if d.meets(parts[i:], special) {
				hit = append(hit, d.rule)
			}
		}
	}
	slices.Sort(hit)
	var rules []nameRule
	for _, i := range slices.Compact(hit) {
		rules = append(rules, n.rules[i])
	}
	return rules
}

// meets says whether the names are those of d, with more where d ends with an
// empty one, or less where what they lead to may be anything.
func (d dir) meets(parts []string, special bool) bool {
	beneath := d.parts[len(d.parts)-1] == ""
	want := d.parts
	if beneath {
		want = want[:len(want)-1]
	}
	n := min(len(parts), len(want))
	switch {
	case !slices.Equal(parts[:n], want[:n]):
		return false
	case len(parts) < len(want):
		return special
	case len(parts) == len(want):
		return !beneath || special
	default:
		return beneath
	}
}

// named looks a name up.
func (s *sight) named(name string, gone, special bool) {
	for _, r := range s.judge.names.of(strings.Split(folded(name), "/"), special) {
		if !gone || r.gone {
			s.add(r.id, name, 0, r.why)
		}
	}
}

// folded is the name as the most forgiving file system sees it.
func folded(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if !ascii(part) {
			part = norm.NFKC.String(strings.Map(visible, part))
		}
		part = strings.ToLower(part)
		if at := strings.IndexByte(part, ':'); at > 0 {
			part = part[:at] // a stream of the file on NTFS
		}
		if cut := strings.TrimRight(part, " ."); cut != "" {
			part = cut
		}
		parts[i] = part
	}
	return strings.Join(parts, "/")
}

func foldedBase(name string) string { return path.Base(folded(name)) }

func ascii(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// visible drops what file systems don't count, or nobody sees.
func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// hostile finds what is wrong with a name itself.
func (s *sight) hostile(name string) {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			s.add("path.outside", name, 0, "The name leads out of the tree, or may.")
			break
		}
	}
	if slices.ContainsFunc(strings.Split(folded(strings.ReplaceAll(name, `\`, "/")), "/"), isGit) {
		s.add("path.git", name, 0, "A file system may take a part of the name for .git or one of git's own files.")
	} else if strings.Contains(name, `\`) {
		s.add("name.backslash", name, 0, "The name has a backslash, which is a folder on Windows.")
	}
	switch {
	case !utf8.ValidString(name):
		s.add("name.encoding", name, 0, "The name is not UTF-8, so it is shown and compared in different ways.")
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.Is(unicode.C, r) && r != 0x200c && r != 0x200d }), joined(name):
		s.add("name.control", name, 0, "The name has control, direction or invisible characters, so it can't be shown as it is.")
	default:
		if mixed([]byte(name)) {
			s.add("name.homoglyph", name, 0, "The name mixes letters of different scripts that look alike.")
		}
	}
}

// joined says whether the name has a joiner where none joins anything.
func joined(name string) bool {
	before := rune(0)
	for _, r := range name {
		if (r == 0x200c || r == 0x200d) && before < 0x250 {
			return true
		}
		before = r
	}
	return false
}

// isGit says whether a folded name is .git, or one of git's own files by a name
// that only a short form of Windows leads to.
func isGit(part string) bool {
	if part == ".git" {
		return true
	}
	stem, number, short := strings.Cut(part, "~")
	if !short || number == "" || strings.Trim(number, "0123456789") != "" {
		return false
	}
	switch stem {
	case "git", "gitmod", "gitatt", "gitign":
		return true
	}
	return len(stem) == 6 && strings.HasPrefix(stem, "gi") && strings.Trim(stem[2:], "0123456789abcdef") == ""
}
