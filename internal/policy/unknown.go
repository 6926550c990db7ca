package policy

import (
	"cmp"
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// How long a person may take to answer for a held connection.
const (
	askWait    = 2 * time.Minute
	mostToWait = 10 * time.Minute
)

// unknownRule is what a layer says of connections that no rule matches.
type unknownRule struct {
	mode task.UnknownMode
	line int
}

// modes are the words of files, from the strictest on.
func modes() []string { return []string{"deny", string(task.UnknownAsk), string(task.UnknownLog)} }

// rank orders the modes: a higher one lets more through.
func rank(m task.UnknownMode) int {
	switch m {
	case task.UnknownAsk:
		return 1
	case task.UnknownLog:
		return 2
	case task.UnknownDeny:
	}
	return 0
}

func (m unknownRule) word() string { return modes()[rank(m.mode)] }

func (r *reader) unknown(n *yaml.Node, path string) unknownRule {
	word := r.oneOf(n, path, modes()...)
	if word == "deny" {
		word = ""
	}
	return unknownRule{task.UnknownMode(word), n.Line}
}

func (r *reader) askWait(n *yaml.Node, path string) lasting {
	d := r.duration(n, path)
	if d > mostToWait {
		r.errorf(n, path, "%s is too long to hold a connection; at most %s", d, mostToWait)
	}
	return lasting{d, n.Line}
}

// unknown is what becomes of a stage's unknown connections: what the lowest
// layer says that names it, within what the layers above let it say. A task
// that lists what the stage reaches and says nothing of the rest denies the
// rest.
func (s *stack) unknown(stage task.StageName) task.Unknown {
	field := string(stage) + ".network.unknown"
	said, by := unknownRule{}, (*file)(nil)
	most, mostBy := unknownRule{mode: task.UnknownAsk}, &s.operator
	if c := s.operator.ceiling.unknown; c != nil {
		most = *c
	}
	if u, ok := s.project.unknown[stage]; ok {
		if rank(u.mode) > rank(most.mode) {
			s.overUnknown(&s.project, u, field, most, mostBy)
		}
		said, by = u, &s.project
	}
	if c := s.project.ceiling.unknown; c != nil && rank(c.mode) < rank(most.mode) {
		most, mostBy = *c, &s.project
	} else if _, names := s.bindsBy(stage); c == nil && (by != nil || names) && rank(said.mode) < rank(most.mode) {
		most, mostBy = said, &s.project // what it names binds those below
	}
	if u, ok := s.task.unknown[stage]; ok {
		if rank(u.mode) > rank(most.mode) {
			s.overUnknown(&s.task, u, field, most, mostBy)
		}
		said, by = u, &s.task
	} else if _, names := s.task.network[stage]; names {
		said, by = unknownRule{}, nil
	}
	if by == nil || said.mode == task.UnknownDeny {
		return task.Unknown{}
	}
	s.origins[field] = origin{by.layer, said.line}
	return s.bounded(said.mode, stage)
}

func (s *stack) overUnknown(f *file, u unknownRule, field string, most unknownRule, by *file) {
	s.refuse(f, u.line, field, "%s is more than %s; the %s allows no more (ceiling.unknown)", u.word(), most.word(), by.name)
}

// bounded is the mode with what the layers above bind it by.
func (s *stack) bounded(mode task.UnknownMode, stage task.StageName) task.Unknown {
	u := task.Unknown{Mode: mode}
	if mode == task.UnknownAsk {
		u.Wait = cmp.Or(s.task.wait[stage].Duration, s.project.wait[stage].Duration, askWait)
	}
	for _, f := range []*file{&s.operator, &s.project} {
		u.Admins = u.Admins || f.ceiling.adminsOnly && mode == task.UnknownAsk
		u.Inspect = u.Inspect || f.ceiling.noSplice
		for _, bounds := range [][]lined{f.ceiling.all, f.ceiling.stages[stage]} {
			if bounds == nil {
				continue
			}
			list := make([]task.Rule, 0, len(bounds))
			for _, b := range bounds {
				list = append(list, b.Rule)
			}
			u.Within = append(u.Within, list)
		}
	}
	return u
}

// explainUnknown tells what becomes of a stage's unknown connections.
func (s *stack) explainUnknown(plan Plan, stage task.StageName) (Line, bool) {
	u := plan.Unknown[stage]
	l := s.said(string(stage)+".network.unknown", string(u.Mode))
	l.Stage = stage
	switch u.Mode {
	case task.UnknownAsk:
		l.Note = fmt.Sprintf("connections that no rule matches are held, %s at most, until a person answers", u.Wait)
		if u.Admins {
			l.Note += "; only administrators may"
		}
	case task.UnknownLog:
		l.Note = "connections that no rule matches pass and are recorded; nothing is lent to them, and private addresses stay closed"
	case task.UnknownDeny:
		return Line{}, false
	}
	if len(u.Within) > 0 {
		l.Note += "; within the ceilings"
	}
	return l, true
}
