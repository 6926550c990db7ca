// Package junit reads test reports in JUnit's XML, as hostile bytes.
//
// Words. A report is one XML document whose root is testsuite or testsuites. A
// case is an element testcase; it failed when it holds an element failure or
// error, and was skipped when it holds an element skipped. Cases are counted
// here: what the document says about their number is not believed. The suite of a
// case is its class; where it has none, the names of the suites around it.
//
// Refused are documents with a document type, entities of their own, processing
// instructions other than the XML declaration, another encoding than UTF-8, and
// more size, depth or elements than the limits say. Nothing outside of the
// document is ever opened.
package junit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// Form is what the form is called.
const Form = "junit"

// The limits of a report, beside those of every form.
const (
	maxDepth = 64      // elements within each other
	maxNodes = 1 << 20 // elements
)

// Parse reads a whole document. Errors say what is wrong with it, and where.
func Parse(from io.Reader) (report.Report, error) {
	p := parser{d: xml.NewDecoder(report.Bounded(from))}
	err := p.read()
	if err != nil && !report.IsLimit(err) {
		line, _ := p.d.InputPos()
		err = fmt.Errorf("line %d of the report: %w", line, err)
	}
	if err != nil {
		return report.Report{}, err
	}
	return p.found.Report(Form), nil
}

// parser is one reading of one document.
type parser struct {
	d      *xml.Decoder
	found  report.Builder
	depth  int
	nodes  int
	root   bool
	suites []string // names of the suites around what is read
	at     int      // depth of the case that is being read; 0: none
	test   report.Test
	text   bool // the message may be taken from what follows
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
			err = p.begin(t)
		case xml.EndElement:
			err = p.end(t)
		case xml.CharData:
			if p.text && p.test.Message == "" {
				p.test.Message = report.Message(string(t))
			}
		}
		if err != nil {
			return err
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
	case name == "testcase" && p.at != 0:
		return errors.New("a testcase stands within a testcase")
	case name == "testcase":
		p.at, p.test = p.depth, p.begun(t)
	case p.at != 0 && p.depth == p.at+1:
		p.outcome(t)
	case p.at == 0 && name == "testsuite":
		p.suites = append(p.suites, attribute(t, "name"))
	}
	p.root = true
	return nil
}

// begun is the case that an element begins.
func (p *parser) begun(t xml.StartElement) report.Test {
	test := report.Test{Suite: attribute(t, "classname"), Name: attribute(t, "name"), Outcome: report.Passed}
	// Node's reporter says "test" for the class of every case.
	if test.Suite == "" || test.Suite == "test" && len(p.suites) > 0 {
		test.Suite = strings.Join(p.suites, " > ")
	}
	if test.Name == "" {
		test.Name = "(no name)"
	}
	if seconds, err := strconv.ParseFloat(attribute(t, "time"), 64); err == nil {
		test.DurationMS = report.Millis(seconds)
	}
	return test
}

// outcome takes what an element within a case says of it.
func (p *parser) outcome(t xml.StartElement) {
	var outcome report.Outcome
	switch t.Name.Local {
	case "failure":
		outcome = report.Failed
	case "error":
		outcome = report.Erred
	case "skipped":
		outcome = report.Skipped
	default:
		return
	}
	if p.test.Outcome == report.Erred || p.test.Outcome == report.Failed && outcome == report.Skipped {
		return
	}
	p.test.Outcome, p.test.Message, p.text = outcome, attribute(t, "message"), true
}

func (p *parser) end(t xml.EndElement) error {
	defer func() { p.depth-- }()
	switch {
	case p.at != 0 && p.depth == p.at:
		p.at = 0
		return p.found.Take(p.test)
	case p.at != 0 && p.depth == p.at+1:
		p.text = false
	case p.at == 0 && t.Name.Local == "testsuite" && len(p.suites) > 0:
		p.suites = p.suites[:len(p.suites)-1]
	}
	return nil
}

func attribute(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
