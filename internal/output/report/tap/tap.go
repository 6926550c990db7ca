// Package tap reads TAP 13 and 14, the Test Anything Protocol, as hostile bytes.
//
// Words. A point is a line "ok" or "not ok", with a number, a description and a
// directive as it likes. Points that are indented belong to the next point that is
// indented less: its description is their suite. A point whose directive is SKIP was
// skipped; one that is not ok and has TODO was expected to fail, and counts as
// skipped too. A block is the YAML between "---" and "..." below a point; of it the
// duration and the error are read, and nothing in it is a point.
//
// Lines that are nothing of this are allowed, and counted as foreign when they are
// no comment. What is promised and does not come (the points of a plan, the end of a block) and
// "Bail out!" is a test without a name that could not say.
package tap

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// Form is what the form is called.
const Form = "tap"

// maxDepth is how many points may be within each other.
const maxDepth = 16

var (
	versionLine = regexp.MustCompile(`^TAP version 1[34]$`)
	planLine    = regexp.MustCompile(`^1\.\.(\d{1,9})\s*(?:#.*)?$`)
	pointLine   = regexp.MustCompile(`^(not )?ok(?:\s+(\d{1,9})\b)?(?:\s+(.*))?$`)
	directive   = regexp.MustCompile(`(?i)(?:^|[^\\])#\s*(skip|todo)\S*\s*(.*)$`)
	firstPoint  = regexp.MustCompile(`^(?:not )?ok \d{1,9}(?: - .*| #.*)?$`)
	bail        = regexp.MustCompile(`^(?i:bail out!)\s*(.*)$`)
)

// Is says whether a line is one that this form begins with.
func Is(line []byte) bool {
	return versionLine.Match(line) || planLine.Match(line) || firstPoint.Match(line)
}

type point struct {
	report.Test
	within []*point // what belongs to it
}

// level is what stands at one indentation.
type level struct {
	points []*point // not yet known to belong to another
	count  int
	plan   int // -1: none came
}

type parser struct {
	found    report.Builder
	levels   []level
	held     int
	block    string // what the lines of the block that is open begin with
	inBlock  bool
	unescape *strings.Replacer
	known    int // lines that were of this form
	ended    bool
}

// Parse reads a whole output.
func Parse(from io.Reader) (report.Report, error) {
	p := parser{levels: []level{{plan: -1}}, unescape: strings.NewReplacer(`\#`, "#", `\\`, `\`)}
	err := report.Lines(from, p.line)
	if err == nil && p.known == 0 {
		err = errors.New("there is no line of TAP")
	}
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return report.Report{}, err
	}
	return p.found.Report(Form), nil
}

func (p *parser) line(raw []byte, long bool) error {
	if long {
		p.found.Foreign++
		return nil
	}
	text := strings.TrimRight(string(raw), " \t")
	if p.inBlock {
		p.blockLine(text)
		return nil
	}
	body := strings.TrimLeft(text, " ")
	indent := len(text) - len(body)
	depth := indent / 4
	switch {
	case body == "" || strings.HasPrefix(body, "#") || strings.HasPrefix(body, "pragma "):
		return nil
	case depth > maxDepth:
		return fmt.Errorf("more than %d points within each other", maxDepth)
	case body == "---" && indent%4 != 0:
		p.inBlock, p.block = true, text[:indent]
	case indent%4 != 0:
		p.found.Foreign++
	case versionLine.MatchString(body):
		p.known++
	case planLine.MatchString(body):
		n, _ := strconv.Atoi(planLine.FindStringSubmatch(body)[1]) // nine digits at most
		p.known++
		p.at(depth).plan = n
	case bail.MatchString(body):
		p.known++
		p.ended = true
		return p.found.Take(report.Test{Outcome: report.Erred, Message: "bail out: " + bail.FindStringSubmatch(body)[1]})
	case pointLine.MatchString(body):
		p.known++
		return p.point(depth, pointLine.FindStringSubmatch(body))
	default:
		p.found.Foreign++
	}
	return nil
}

// at is the level of a depth.
func (p *parser) at(depth int) *level {
	for len(p.levels) <= depth {
		p.levels = append(p.levels, level{plan: -1})
	}
	return &p.levels[depth]
}

func (p *parser) point(depth int, m []string) error {
	if p.held++; p.held > report.MaxTests {
		return report.ErrTests
	}
	t := report.Test{Outcome: report.Passed}
	if m[1] != "" {
		t.Outcome = report.Failed
	}
	description := m[3]
	var d []int
	if strings.Contains(description, "#") {
		d = directive.FindStringSubmatchIndex(description)
	}
	if d != nil {
		why := description[d[4]:d[5]]
		if kind := strings.ToLower(description[d[2]:d[3]]); kind == "skip" || t.Outcome == report.Failed {
			t.Outcome, t.Message = report.Skipped, strings.TrimSpace(kind+" "+why)
		}
		if hash := strings.LastIndexByte(description[:d[2]], '#'); hash >= 0 {
			description = description[:hash]
		}
	}
	description = strings.TrimSpace(description)
	description = strings.TrimSpace(strings.TrimPrefix(description, "- "))
	t.Name = report.Plain(p.unescape.Replace(description), report.MaxName)
	to := p.at(depth)
	if to.count++; t.Name == "" {
		number := m[2]
		if number == "" {
			number = strconv.Itoa(to.count)
		}
		t.Name = "#" + number
	}
	made := &point{Test: t}
	// What stands further in belongs to this point.
	for deeper := depth + 1; deeper < len(p.levels); deeper++ {
		l := &p.levels[deeper]
		if err := p.planned(*l, t.Name); err != nil {
			return err
		}
		made.within = append(made.within, l.points...)
		*l = level{plan: -1}
	}
	if depth > 0 {
		to.points = append(to.points, made)
		return nil
	}
	// Below the last one a block may follow.
	for _, done := range to.points {
		if err := p.take(done, ""); err != nil {
			return err
		}
	}
	to.points = []*point{made}
	return nil
}

// take takes a point and what belongs to it; path are the points around it.
func (p *parser) take(t *point, path string) error {
	t.Suite = path
	if len(t.within) > 0 {
		if path != "" {
			path += " > "
		}
		path = report.Plain(path+t.Name, report.MaxName)
	}
	for _, child := range t.within {
		if err := p.take(child, path); err != nil {
			return err
		}
	}
	return p.found.Take(t.Test)
}

// planned notes that a level has fewer points than it said, or more.
func (p *parser) planned(l level, name string) error {
	if l.plan < 0 || l.plan == l.count || p.ended {
		return nil
	}
	return p.found.Take(report.Test{Suite: name, Outcome: report.Erred, Message: fmt.Sprintf("the plan says %d, and there are %d", l.plan, l.count)})
}

// blockLine reads a line of the block below the last point.
func (p *parser) blockLine(text string) {
	inner, ok := strings.CutPrefix(text, p.block)
	if ok && inner == "..." {
		p.inBlock = false
		return
	}
	last := p.last()
	if !ok || last == nil {
		return
	}
	key, value, _ := strings.Cut(inner, ":")
	value = strings.Trim(strings.TrimSpace(value), `'"`)
	switch key {
	case "duration_ms":
		if ms, err := strconv.ParseFloat(value, 64); err == nil {
			last.DurationMS = report.Millis(ms / 1000)
		}
	case "error", "message":
		// A value on lines of its own follows the sign that says so.
		if last.Message == "" && value != "" && value[0] != '|' && value[0] != '>' && last.Outcome != report.Passed {
			last.Message = report.Message(value)
		}
	}
}

// last is the point that a block belongs to.
func (p *parser) last() *point {
	depth := len(p.block) / 4
	if depth >= len(p.levels) || len(p.levels[depth].points) == 0 {
		return nil
	}
	points := p.levels[depth].points
	return points[len(points)-1]
}

func (p *parser) finish() error {
	for depth, l := range p.levels {
		if depth > 0 && len(l.points) > 0 {
			if err := p.found.Take(report.Test{Suite: "(cut)", Outcome: report.Erred, Message: "points that belong to none: the output is cut"}); err != nil {
				return err
			}
		}
		for _, t := range l.points {
			if err := p.take(t, ""); err != nil {
				return err
			}
		}
		if err := p.planned(l, ""); err != nil {
			return err
		}
	}
	if p.levels[0].plan < 0 && !p.ended {
		return p.found.Take(report.Test{Outcome: report.Erred, Message: "there is no plan: the output is cut"})
	}
	if p.inBlock {
		return p.found.Take(report.Test{Suite: "(cut)", Outcome: report.Erred, Message: "a block does not end: the output is cut"})
	}
	return nil
}
