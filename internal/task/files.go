package task

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FileRules say what the agent stage may do with paths of the workspace.
// Paths are relative to it, clean, with "/" between names and without
// patterns; each stands for itself and all beneath it. The more specific path
// wins. The zero value protects what ProtectedFiles names and nothing else.
type FileRules struct {
	Writable []string `json:"writable,omitempty"` // takes a protection away: a widening, told in the receipt
	ReadOnly []string `json:"readOnly,omitempty"`
	Hidden   []string `json:"hidden,omitempty"` // neither seen nor read
}

// ProtectedFiles are the paths that are read-only unless a policy widens them:
// what would run on another machine when the workspace is opened, committed or
// given to an agent. A path that is absent can't be made either.
func ProtectedFiles() []string {
	return []string{
		".git/config", ".git/config.worktree", ".git/hooks", ".git/info/attributes", ".gitattributes", ".gitmodules",
		".claude", ".mcp.json", ".codex", ".gemini", ".opencode", "opencode.json", ".cursor", ".aider.conf.yml",
		".vscode", ".idea", ".devcontainer", ".envrc", ".cofferdam",
	}
}

// FileDenial is one write that the file rules refused, as the sandbox's kernel
// saw it.
type FileDenial struct {
	Seq       int64     `json:"seq"` // per sandbox, from 1
	Time      time.Time `json:"time"`
	Sandbox   string    `json:"sandbox"`
	Operation string    `json:"operation"` // "open", "rename", "unlink", "mkdir", "link", "chmod", …
	Path      string    `json:"path"`      // as the program gave it, made absolute
	Error     string    `json:"error"`     // "EROFS", "EACCES", "EBUSY", "EPERM"
	Program   string    `json:"program,omitempty"`
	PID       int       `json:"pid,omitempty"`   // inside the sandbox
	Count     int64     `json:"count,omitempty"` // this record stands for so many alike after the first; 0: for one
}

// Access is what may be done with a path. The zero value is no access.
type Access string

// The kinds of access, the widest first.
const (
	AccessWritable Access = "writable"
	AccessReadOnly Access = "read-only"
	AccessHidden   Access = "hidden"
)

// FileRule is one path of the workspace and what may be done with it and all
// beneath it.
type FileRule struct {
	Path   string `json:"path"`
	Access Access `json:"access"`
	From   string `json:"from"` // "default": ProtectedFiles names it; "policy"
}

// The bounds of file rules.
const (
	MaxFileRules = 256
	MaxFilePath  = 1024 // bytes
	maxFileDepth = 32   // names in a path
)

// Check refuses rules that can't be meant as they stand; the error names the
// field.
func (f FileRules) Check() error {
	fields := []struct {
		name  string
		paths []string
	}{{"writable", f.Writable}, {"readOnly", f.ReadOnly}, {"hidden", f.Hidden}}
	seen := map[string]string{}
	for _, field := range fields {
		for _, p := range field.paths {
			if why := badFilePath(p); why != "" {
				return Fail(InputInvalid, fmt.Sprintf("files.%s: path %q %s", field.name, p, why), nil)
			}
			if other, twice := seen[p]; twice {
				return Fail(InputInvalid, fmt.Sprintf("files.%s: path %q is in files.%s too; keep one", field.name, p, other), nil)
			}
			seen[p] = field.name
		}
	}
	if len(seen) > MaxFileRules {
		return Fail(InputInvalid, fmt.Sprintf("files: %d paths; the most is %d", len(seen), MaxFileRules), nil)
	}
	return nil
}

// badFilePath says what is wrong with a path, or "".
func badFilePath(p string) string {
	switch {
	case p == "" || p == ".":
		return "stands for the whole workspace; name what lies in it"
	case len(p) > MaxFilePath:
		return fmt.Sprintf("is longer than %d bytes", MaxFilePath)
	case strings.HasPrefix(p, "/"):
		return "is absolute; it must be relative to the workspace"
	case path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return "is not clean: without empty names, '.', '..' and a slash at its end"
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(p):
		return "holds a control character or is not UTF-8"
	case strings.ContainsAny(p, "*?["):
		return "holds a pattern; patterns are not known here"
	case strings.Count(p, "/") >= maxFileDepth:
		return fmt.Sprintf("has more than %d names", maxFileDepth)
	}
	return ""
}

// Effective lists what the rules come to together with ProtectedFiles, sorted by
// path. Where the same path is named twice, the narrower access stands, and a
// policy's word before the default's.
func (f FileRules) Effective() []FileRule {
	rules := map[string]FileRule{}
	for _, p := range ProtectedFiles() {
		rules[p] = FileRule{Path: p, Access: AccessReadOnly, From: "default"}
	}
	for _, field := range []struct {
		access Access
		paths  []string
	}{{AccessWritable, f.Writable}, {AccessReadOnly, f.ReadOnly}, {AccessHidden, f.Hidden}} {
		for _, p := range field.paths {
			rules[p] = FileRule{Path: p, Access: field.access, From: "policy"}
		}
	}
	// A folder that is made writable takes the defaults beneath it along.
	for _, w := range f.Writable {
		for p, r := range rules {
			if r.From == "default" && strings.HasPrefix(p, w+"/") {
				delete(rules, p)
			}
		}
	}
	list := make([]FileRule, 0, len(rules))
	for _, r := range rules {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b FileRule) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// Access says what may be done with a path of the workspace. Names are compared
// as a file system would that folds case, ignores what can't be seen and gives
// long names short ones, since that is where the patch may be opened.
func (f FileRules) Access(name string) Access {
	parts := foldedParts(name)
	access, depth := AccessWritable, 0
	for _, r := range f.Effective() {
		rule := foldedParts(r.Path)
		if len(rule) <= len(parts) && len(rule) > depth && slices.EqualFunc(rule, parts[:len(rule)], sameName) {
			access, depth = r.Access, len(rule)
		}
	}
	return access
}

// Widened lists the paths that ProtectedFiles names and the rules make writable,
// sorted.
func (f FileRules) Widened() []string {
	var list []string
	for _, p := range ProtectedFiles() {
		if f.Access(p) == AccessWritable {
			list = append(list, p)
		}
	}
	for _, w := range f.Writable { // Something beneath a protected folder.
		narrower := f
		narrower.Writable = slices.DeleteFunc(slices.Clone(f.Writable), func(p string) bool { return p == w })
		if narrower.Access(w) != AccessWritable && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	slices.Sort(list)
	return list
}

// sameName says whether part, folded, stands for the name in a rule: itself, or
// as the short name that FAT and NTFS give it, "GITATT~1" for .gitattributes.
func sameName(rule, part string) bool {
	if rule == part {
		return true
	}
	front, number, ok := strings.Cut(part, "~")
	number, ending, _ := strings.Cut(number, ".")
	if !ok || number == "" || len(number) > 6 || strings.Trim(number, "0123456789") != "" {
		return false
	}
	base, extension := strings.TrimLeft(rule, "."), ""
	if i := strings.LastIndexByte(base, '.'); i >= 0 {
		base, extension = base[:i], base[i+1:]
	}
	base = strings.NewReplacer(".", "", " ", "").Replace(base)
	return front == base[:min(len(base), 7-len(number))] && ending == extension[:min(len(extension), 3)]
}

// foldedParts are a path's names as HFS+ and NTFS would compare them: case is
// folded, dots and spaces at the end and characters without a shape are ignored,
// and so is what follows a colon.
func foldedParts(name string) []string {
	parts := strings.Split(name, "/")
	kept := parts[:0]
	for _, part := range parts {
		part = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) {
				return -1
			}
			return unicode.ToLower(unicode.ToUpper(r))
		}, part)
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, " .")
		if part != "" {
			kept = append(kept, part)
		}
	}
	return kept
}

// FileProtection is what file rules came to in one sandbox. Paths are relative
// to the workspace.
type FileProtection struct {
	Rules        []FileRule `json:"rules"`                  // as Effective lists them
	Widened      []string   `json:"widened,omitempty"`      // protected by default, and writable here
	Placeholders []string   `json:"placeholders,omitempty"` // stand for what is absent, so that it can't be made
	Replaced     []string   `json:"replaced,omitempty"`     // links that placeholders stand for now
	Submodules   []string   `json:"submodules,omitempty"`   // read-only beside what the rules name
}
