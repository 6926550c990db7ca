package flags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/flags/patch"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What is kept of findings, and what is much.
const (
	maxFindings = 100
	maxOfID     = 20 // of one id
	maxInFile   = 5  // of one id in one file
	maxShown    = 256

	manyFiles     = 200
	manyLines     = 10_000 // added, by the whole patch
	manyLinesHere = 5_000  // added, to one file
	manyBytesHere = 1 << 20
)

// Judge finds what may bite in patches. It is safe for concurrent use as far as its
// Secrets are.
type Judge struct {
	names   names
	secrets Secrets
}

// New returns a Judge.
func New(secrets Secrets) *Judge { return &Judge{names: newNames(nameRules()), secrets: secrets} }

// Judge reads a patch to its end. A patch that can't be read is a finding; an error
// is of from or of ctx.
func (j *Judge) Judge(ctx context.Context, from io.Reader, rules task.FlagRules) (task.FlagReport, error) {
	s := &sight{ctx: ctx, judge: j, rules: rules, seen: map[task.Flag]bool{}, of: map[string]int{}, tree: newTree()}
	err := patch.Read(cancellable{ctx, from}, s)
	var unreadable *patch.Error
	switch {
	case ctx.Err() != nil:
		return task.FlagReport{}, ctx.Err()
	case errors.As(err, &unreadable):
		s.add("unreadable.patch", "", unreadable.Line, "The patch isn't as git writes patches: "+unreadable.Text+".")
	case err != nil:
		return task.FlagReport{}, err
	}
	s.finish()
	return s.report(), nil
}

type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancellable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// sight is one look at one patch.
type sight struct {
	ctx   context.Context //nolint:containedctx // of the one call that the look lasts for
	judge *Judge
	rules task.FlagRules

	findings []task.Finding
	more     int
	seen     map[task.Flag]bool
	of       map[string]int // findings by id

	tree   *tree
	file   *current // nil: between files
	files  int
	lines  int // added
	looked int // bytes that were looked at for secrets
}

// current is the file that is being read.
type current struct {
	patch.File
	name   string
	checks []check
	lines  int // added
	bytes  int
	of     map[string]int // findings by id

	target []byte // of a link
	text   secretText
}

// add keeps a finding, or counts it.
func (s *sight) add(id, name string, line int, why string) {
	word, _, _ := strings.Cut(id, ".")
	kind, _ := task.FlagKindOf(task.Flag(word))
	s.seen[kind.Flag] = true
	s.of[id]++
	if s.file != nil {
		s.file.of[id]++
	}
	if s.of[id] > maxOfID || s.file != nil && s.file.of[id] > maxInFile {
		s.more++
		return
	}
	s.findings = append(s.findings, task.Finding{
		ID: id, Flag: kind.Flag, Severity: kind.Severity, Verdict: s.rules.Verdict(kind.Flag), Path: shown(name), Line: line, Why: why,
	})
}

// shown is a name that is harmless to look at, and not too long.
func shown(name string) string {
	text := patch.Quoted(name)
	if len(text) > maxShown {
		return text[:maxShown] + "..."
	}
	return text
}

// File implements patch.Visitor.
func (s *sight) File(f patch.File) {
	s.files++
	s.file = &current{File: f, name: f.Name(), of: map[string]int{}}
	c := s.file
	if f.Moved == patch.Renamed {
		s.tree.leave(f.Old)
		s.named(f.Old, true, false)
	}
	s.hostile(c.name)
	s.named(c.name, f.New == "", f.NewMode == patch.ModeLink || f.NewMode == patch.ModeModule)
	if f.New == "" {
		s.tree.leave(f.Old)
		return
	}
	s.tree.enter(f.New)
	c.checks = checksOf(foldedBase(c.name))
	if f.NewMode == patch.ModeModule {
		s.add("git.submodule", c.name, 0, "A submodule brings a repository of somebody else, at a commit that is not in the patch.")
	}
	if f.NewMode == patch.ModeExecutable && f.OldMode != patch.ModeExecutable {
		s.add("mode.executable", c.name, 0, "The file may be executed from now on.")
	}
	if f.Moved != "" {
		s.add("limit.moved", c.name, 0, "The file comes from another name, and only what changes in it is shown.")
	}
	if f.Binary {
		s.add("binary.content", c.name, 0, "The content is binary, so nobody can review it by reading.")
	}
	if f.Binary || f.Moved != "" {
		for _, check := range c.checks {
			s.add(check.id, c.name, 0, "The content isn't shown line by line, and it may have "+check.may+".")
		}
	}
}

// Line implements patch.Visitor.
func (s *sight) Line(l patch.Line) {
	c := s.file
	if c.NewMode == patch.ModeLink && c.New != "" {
		if l.Op != '-' {
			c.target = append(append(c.target, l.Text[:min(len(l.Text), maxTarget)]...), '\n')
			c.target = c.target[:min(len(c.target), maxTarget)]
		}
		return
	}
	if c.NewMode == patch.ModeModule {
		return
	}
	if l.Op == '-' && c.New != "" && hasLicence(l.Text) {
		s.add("licence.notice", c.name, l.New, "A line that says under which licence the file stands is removed or changed.")
	}
	if l.Op != '+' {
		return
	}
	s.lines++
	c.lines++
	c.bytes += len(l.Text) + 1
	if l.Cut {
		s.add("limit.line", c.name, l.New, fmt.Sprintf("The line is longer than %d bytes, and the rest of it was not looked at.", patch.MaxLine))
		c.bytes = max(c.bytes, manyBytesHere+1)
	}
	for _, t := range textFaults(l.Text, l.New == 1) {
		s.add(t.id, c.name, l.New, t.why)
	}
	for _, check := range c.checks {
		if check.line(l.Text) {
			s.add(check.id, c.name, l.New, "The line has "+check.may+".")
		}
	}
	s.keepForSecrets(l)
}

// End implements patch.Visitor.
func (s *sight) End() {
	c := s.file
	s.lookForSecrets(true)
	if c.lines > manyLinesHere || c.bytes > manyBytesHere {
		s.add("bulk.file", c.name, 0, fmt.Sprintf("%d lines are added to one file, which is more than a person reads.", c.lines))
	}
	if c.NewMode == patch.ModeLink && c.New != "" {
		s.tree.link(c.New, strings.TrimSuffix(string(c.target), "\n"), c.Binary || c.Moved != "")
	}
	s.file = nil
}

// finish looks at what only the whole patch shows.
func (s *sight) finish() {
	s.file = nil
	for _, f := range s.tree.faults() {
		s.add(f.id, f.name, 0, f.why)
	}
	if s.files > manyFiles {
		s.add("bulk.files", "", 0, fmt.Sprintf("The patch changes %d files, which is more than a person reads.", s.files))
	}
	if s.lines > manyLines {
		s.add("bulk.lines", "", 0, fmt.Sprintf("The patch adds %d lines, which is more than a person reads.", s.lines))
	}
}

// report puts the findings in their order: the worst kinds first, then as the
// patch has them.
func (s *sight) report() task.FlagReport {
	if over := len(s.findings) - (maxFindings - 1); over > 0 || s.more > 0 {
		s.more += max(over, 0)
		s.seen[task.FlagLimit] = true
	}
	place := map[task.Flag]int{}
	r := task.FlagReport{More: s.more, Verdict: task.FlagAllow}
	for i, k := range task.FlagKinds() {
		place[k.Flag] = i
		if !s.seen[k.Flag] {
			continue
		}
		r.Flags = append(r.Flags, k.Flag)
		if v := s.rules.Verdict(k.Flag); r.Verdict.Looser(v) {
			r.Verdict = v
		}
	}
	slices.SortStableFunc(s.findings, func(a, b task.Finding) int { return cmp.Compare(place[a.Flag], place[b.Flag]) })
	r.Findings = s.findings[:min(len(s.findings), maxFindings-1)]
	if s.more > 0 {
		kind, _ := task.FlagKindOf(task.FlagLimit)
		r.Findings = append(r.Findings, task.Finding{
			ID: "limit.findings", Flag: kind.Flag, Severity: kind.Severity, Verdict: s.rules.Verdict(kind.Flag),
			Why: fmt.Sprintf("%d findings more are not listed.", s.more),
		})
	}
	return r
}
