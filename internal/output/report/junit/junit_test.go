package junit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

func TestParse(t *testing.T) {
	got, err := Parse(strings.NewReader(`<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="999"><testsuite name="a" failures="0">
<properties><property name="x" value="y"/></properties>
<testcase classname="pkg.A" name="good"/>
<testcase classname="pkg.A" name="bad"><failure message="m">text &amp; &#x41;</failure><system-out>o</system-out></testcase>
<testcase name="worse"><error/><failure/></testcase>
<testcase name="later"><skipped/></testcase>
<testsuite><testcase classname="nested"><properties><failure/></properties></testcase></testsuite>
</testsuite></testsuites>`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Tests != 5 || got.Failures != 1 || got.Errors != 1 || got.Skipped != 1 {
		t.Errorf("counts %+v", got)
	}
	var bad []string
	for _, test := range got.List {
		if test.Outcome.Bad() {
			bad = append(bad, test.Title()+": "+test.Message)
		}
	}
	if strings.Join(bad, ",") != "a.worse: ,pkg.A.bad: m" {
		t.Errorf("failed %q", bad)
	}
}

func TestHostileReportsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "no element"},
		"text":        {"not xml at all", "no element"},
		"html":        {"<html></html>", "neither testsuite"},
		"cut":         {"<testsuite><testcase>", "EOF"},
		"mismatch":    {"<testsuite><a></b></testsuite>", "element"},
		"doctype":     {`<!DOCTYPE testsuite SYSTEM "file:///etc/passwd"><testsuite/>`, "document type"},
		"laughs":      {`<!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite>&b;</testsuite>`, "document type"},
		"entity":      {`<testsuite>&evil;</testsuite>`, "entity"},
		"instruction": {`<?xml-stylesheet href="http://x"?><testsuite/>`, "processing"},
		"encoding":    {`<?xml version="1.0" encoding="UTF-16"?><testsuite/>`, "encoding"},
		"utf8":        {"<testsuite name=\"\xff\"/>", "UTF-8"},
		"two roots":   {"<testsuite/><testsuite/>", "second root"},
		"nested case": {"<testsuite><testcase><testcase/></testcase></testsuite>", "within a testcase"},
		"deep":        {"<testsuite>" + strings.Repeat("<a>", 1000), "within each other"},
		"wide":        {"<testsuite>" + strings.Repeat("<a/>", maxNodes+1), "more than 1048576"},
	} {
		if _, err := Parse(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	many := "<testsuite>" + manyCases(report.MaxTests+1) + "</testsuite>"
	if _, err := Parse(strings.NewReader(many)); !errors.Is(err, report.ErrTests) {
		t.Errorf("many: %v", err)
	}
	big := io.MultiReader(strings.NewReader("<testsuite>"), bytes.NewReader(bytes.Repeat([]byte(" "), report.MaxSize)), strings.NewReader("</testsuite>"))
	if _, err := Parse(big); !errors.Is(err, report.ErrSize) {
		t.Errorf("large: %v", err)
	}
	exact := "<testsuite>" + strings.Repeat(" ", report.MaxSize-len("<testsuite></testsuite>")) + "</testsuite>"
	if _, err := Parse(strings.NewReader(exact)); err != nil {
		t.Errorf("exactly as large as it may be: %v", err)
	}
}

func manyCases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `<testcase name="%d"/>`, i)
	}
	return b.String()
}

func TestNamesAreBoundedAndPlain(t *testing.T) {
	var b strings.Builder
	b.WriteString("<testsuite>")
	for i := range 50 {
		fmt.Fprintf(&b, `<testcase name="%s&#x202e;n%d"><failure>
  first &#x1b;[31mline
second</failure></testcase>`, strings.Repeat("ü", 300), i)
	}
	b.WriteString("</testsuite>")
	got, err := Parse(strings.NewReader(b.String()))
	if err == nil && (got.Failures != 50 || len(got.List) != 50) {
		err = fmt.Errorf("%d failures, %d names", got.Failures, len(got.List))
	}
	if err == nil || !strings.Contains(err.Error(), "illegal character code") {
		t.Fatal(err) // XML itself has no escape character
	}
	got, err = Parse(strings.NewReader(strings.ReplaceAll(b.String(), "&#x1b;", "&#x85;")))
	if err != nil || got.Failures != 50 || len(got.List) != 50 {
		t.Fatalf("%d failures, %d names, %v", got.Failures, len(got.List), err)
	}
	for _, test := range got.List {
		if len(test.Name) > report.MaxName || !utf8.ValidString(test.Name) || strings.ContainsRune(test.Name, '\u202e') || test.Message != `first \u{85}[31mline` {
			t.Errorf("test %+v", test)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`<testsuite><testcase name="a"><failure/></testcase></testsuite>`))
	f.Add([]byte(`<!DOCTYPE x><testsuite/>`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Parse(bytes.NewReader(in))
		if err == nil && (r.Tests < r.Failures+r.Errors+r.Skipped || len(r.List) > r.Tests) {
			t.Errorf("%q: %+v", in, r)
		}
	})
}
