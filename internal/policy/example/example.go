// Package example has the examples of policy files: what a file says is allowed
// or denied, and whether it is. An example is decided as the gateway would decide
// it; it opens nothing.
package example

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Example is one line of a file that says what the policy must answer.
type Example struct {
	Line   int
	Stage  task.StageName
	Use    decide.Use
	Method string
	Path   string // of a request, or with write of the workspace
	Query  string // of a request, without the "?"
	Header map[string][]string
	Body   *string // nil: none
	Proto  string
	Write  bool
	Expect task.Verdict
	Reason task.Reason

	Tool *task.ToolAsk    // a use of a tool is asked about; nil: none
	Want task.ToolVerdict // of it
}

// Checked is what became of one example.
type Checked struct {
	Line   int
	Text   string      // the example in one line
	Expect string      // "allowed" or "denied", and of tools "asked"
	Got    string      // as Expect
	Reason task.Reason // of a denial
	Rule   string      // that decided, or for a file what may be done with it; empty: none did
	Passed bool
	Why    string // what is wrong, when not passed
}

// Check asks what the example asks of a stage's grant, or of the file rules.
func (e Example) Check(grant task.Grant, files task.FileRules) Checked {
	c := Checked{Line: e.Line, Text: e.String(), Expect: e.Expect.String(), Got: task.Denied.String()}
	if e.Write {
		if access := files.Access(e.Path); access == task.AccessWritable {
			c.Got = task.Allowed.String()
		} else {
			c.Reason, c.Rule = task.PolicyFiles, string(access)
		}
	} else {
		d := e.decide(grant)
		c.Got, c.Reason, c.Rule = d.Verdict.String(), d.Reason, d.Rule
	}
	switch {
	case c.Got != c.Expect:
		c.Why = fmt.Sprintf("is %s, not %s", c.Got, c.Expect)
	case e.Reason != "" && e.Reason != c.Reason:
		c.Why = fmt.Sprintf("is denied for %s, not for %s", c.Reason, e.Reason)
	default:
		c.Passed = true
	}
	return c
}

// CheckTool compares what the policy says of the use of a tool.
func (e Example) CheckTool(d task.ToolDecision) Checked {
	words := [...]string{"denied", "asked", "allowed"}
	c := Checked{Line: e.Line, Text: e.String(), Expect: words[e.Want.Rank()], Got: words[d.Verdict.Rank()], Rule: d.Rule}
	if c.Passed = c.Got == c.Expect; !c.Passed {
		c.Why = fmt.Sprintf("is %s, not %s", c.Got, c.Expect)
	}
	return c
}

// decide answers as the gateway would while every rule lasts: the connection, and
// where requests are looked at, the request.
func (e Example) decide(grant task.Grant) task.Decision {
	grant = grant.Endless()
	d := decide.Decide(grant, e.Use)
	if d.Verdict != task.Allowed {
		return d
	}
	if e.Proto != "" && len(d.Protocols) > 0 && !slices.Contains(d.Protocols, e.Proto) {
		return task.Decision{Verdict: task.Denied, Reason: task.PolicyProtocol}
	}
	if d.Inspect && (e.Method != "" || e.Path != "" || e.Query != "" || e.Header != nil || e.Body != nil) {
		q := decide.Request{Method: e.Method, Path: e.Path, Query: e.Query, Header: e.Header, Body: &decide.Body{}}
		if e.Body != nil {
			q.Body.Bytes = []byte(*e.Body)
			if q.Header = maps.Clone(e.Header); q.Header["Content-Type"] == nil {
				if q.Header == nil {
					q.Header = map[string][]string{}
				}
				q.Header["Content-Type"] = []string{"application/json"}
			}
		}
		if q.Method == "" {
			q.Method = "GET"
		}
		if q.Path == "" {
			q.Path = "/"
		}
		return decide.DecideRequest(grant, e.Use, q)
	}
	return d
}

// String is the example in one line.
func (e Example) String() string {
	if e.Write {
		return "write " + e.Path
	}
	if e.Tool != nil {
		return strings.TrimSpace("tool " + e.Tool.Tool + " " + strings.Join(e.Tool.Argv, " "))
	}
	words := []string{string(e.Stage)}
	for _, w := range []string{e.Proto, e.Method} {
		if w != "" {
			words = append(words, w)
		}
	}
	host := e.Use.Name + e.Use.Address
	path := e.Path
	if e.Query != "" {
		path += "?" + e.Query
	}
	words = append(words, fmt.Sprintf("%s:%d%s", host, e.Use.Port, path))
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		words = append(words, name+": "+strings.Join(e.Header[name], ", "))
	}
	if e.Body != nil {
		words = append(words, brief(*e.Body))
	}
	return strings.Join(words, " ")
}

// brief cuts a text.
func brief(text string) string {
	if len(text) <= 400 {
		return text
	}
	return strings.ToValidUTF8(text[:400], "") + "…"
}
