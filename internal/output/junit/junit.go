// Package junit reads test reports in JUnit's XML, as hostile bytes: a report was
// written by tests that ran beside a stranger's patch.
//
// Words. A report is one XML document whose root is testsuite or testsuites. A
// case is an element testcase; it failed when it holds an element failure or
// error, and was skipped when it holds an element skipped. Cases are counted
// here: what the document says about their number is not believed.
//
// Refused are documents with a document type, entities of their own, processing
// instructions other than the XML declaration, another encoding than UTF-8, and
// more size, depth or elements than the limits below. Nothing outside of the
// document is ever opened.
//
// Not promised: that a test which a report calls passed was ever run.
package junit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a report.
const (
	MaxSize  = 8 << 20 // bytes
	maxDepth = 64      // elements within each other
	maxNodes = 1 << 20 // elements
	maxNames = 20      // failures that are named
	maxName  = 256     // bytes of such a name
)

// Report is what a document says. The zero Report has no test.
type Report struct {
	Tests    int      `json:"tests"`
	Failures int      `json:"failures"`
	Errors   int      `json:"errors"`
	Skipped  int      `json:"skipped"`
	Failed   []string `json:"failed,omitempty"` // names of the first cases that failed or had an error, made harmless to show
}

// ErrSize is what Parse returns for a document of more than MaxSize bytes.
var ErrSize = fmt.Errorf("the report is larger than %d bytes", MaxSize)

// Parse reads a whole document. Errors say what is wrong with it, and where.
func Parse(from io.Reader) (Report, error) {
	in := &bounded{from: from, left: MaxSize}
	p := parser{d: xml.NewDecoder(in)}
	err := p.read()
	switch {
	case in.over:
		return Report{}, ErrSize
	case err != nil:
		line, _ := p.d.InputPos()
		return Report{}, fmt.Errorf("line %d of the report: %w", line, err)
	}
	return p.report, nil
}

// parser is one reading of one document.
type parser struct {
	d                      *xml.Decoder
	report                 Report
	depth                  int
	nodes                  int
	root                   bool
	test                   int // depth of the case that is being read; 0: none
	name                   string
	failed, erred, skipped bool
}

func (p *parser) read() error {
	for {
		token, err := p.d.Token()
		if errors.Is(err, io.EOF) {
			if !p.root {
				return errors.New("there is no element")
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.Directive:
			return errors.New("a document type is not taken")
		case xml.ProcInst:
			if t.Target != "xml" {
				return errors.New("processing instructions are not taken")
			}
		case xml.StartElement:
			if err := p.begin(t); err != nil {
				return err
			}
		case xml.EndElement:
			p.end()
		}
	}
}

func (p *parser) begin(t xml.StartElement) error {
	p.depth++
	p.nodes++
	name := t.Name.Local
	switch {
	case p.depth > maxDepth:
		return fmt.Errorf("more than %d elements within each other", maxDepth)
	case p.nodes > maxNodes:
		return fmt.Errorf("more than %d elements", maxNodes)
	case p.depth == 1 && p.root:
		return errors.New("there is a second root element")
	case p.depth == 1 && name != "testsuite" && name != "testsuites":
		return errors.New("the root is neither testsuite nor testsuites")
	case p.depth == 1:
		p.root = true
	case name == "testcase" && p.test != 0:
		return errors.New("a testcase stands within a testcase")
	case name == "testcase":
		p.test, p.name, p.failed, p.erred, p.skipped = p.depth, caseName(t), false, false, false
	case p.test != 0 && p.depth == p.test+1:
		p.failed = p.failed || name == "failure"
		p.erred = p.erred || name == "error"
		p.skipped = p.skipped || name == "skipped"
	}
	return nil
}

func (p *parser) end() {
	if p.test != 0 && p.depth == p.test {
		p.test = 0
		p.report.Tests++
		switch {
		case p.erred:
			p.report.Errors++
		case p.failed:
			p.report.Failures++
		case p.skipped:
			p.report.Skipped++
		}
		if (p.erred || p.failed) && len(p.report.Failed) < maxNames {
			p.report.Failed = append(p.report.Failed, p.name)
		}
	}
	p.depth--
}

// caseName is what a case is called: its class and its name.
func caseName(t xml.StartElement) string {
	var class, name string
	for _, a := range t.Attr {
		switch a.Name.Local {
		case "classname":
			class = a.Value
		case "name":
			name = a.Value
		}
	}
	if class != "" {
		name = class + "." + name
	}
	if name == "" {
		return "(no name)"
	}
	return plain(name)
}

// plain cuts a name and takes out what is no printable character.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if len(name) <= maxName {
		return name
	}
	cut := maxName - len("…")
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

// bounded reads at most left bytes and remembers that there were more.
type bounded struct {
	from io.Reader
	left int64
	over bool
}

// Read ends with an error where too much came.
func (b *bounded) Read(to []byte) (int, error) {
	if b.left <= 0 {
		var one [1]byte
		n, err := io.ReadFull(b.from, one[:])
		if n > 0 {
			b.over = true
			return 0, ErrSize
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return 0, err
	}
	n, err := b.from.Read(to[:min(int64(len(to)), b.left)])
	b.left -= int64(n)
	return n, err
}
