package modeltest

import (
	"bytes"
	"encoding/json"
)

// Mark stands before a script in a prompt: a JSON list of steps. Such a script
// goes before the server's own.
const Mark = "SCRIPT ["

// steps are what a request is answered from.
func (s *Server) steps(body []byte) []Step {
	if steps, ok := prompted(body); ok {
		return steps
	}
	return s.options.Steps
}

// prompted is the last script in the text of a request.
func prompted(body []byte) ([]Step, bool) {
	var found []Step
	ok := false
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if steps, err := ParseScript([]byte(v)); err == nil {
				found, ok = steps, true
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case object:
			// Only what a user said: tools' results and answers come back, too.
			if role, has := v["role"]; has && role != "user" || v["type"] == "tool_result" {
				return
			}
			for _, key := range []string{"messages", "input", "contents", "content", "parts", "text"} {
				walk(v[key])
			}
		}
	}
	var q object
	if json.Unmarshal(body, &q) == nil {
		walk(q)
	}
	return found, ok
}

// ParseScript reads the list of steps after the last Mark in a text.
func ParseScript(text []byte) ([]Step, error) {
	at := bytes.LastIndex(text, []byte(Mark))
	if at < 0 {
		return nil, errNoScript{}
	}
	text = text[at+len(Mark)-1:]
	var steps []Step
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&steps)
	if err != nil { // some harnesses escape the quotes of a prompt
		err = json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(text, []byte(`\"`), []byte(`"`)))).Decode(&steps)
	}
	return steps, err
}

type errNoScript struct{}

func (errNoScript) Error() string { return "no script: " + Mark + " is missing" }

// stepOf is the step that follows so many tool results.
func stepOf(steps []Step, results int) Step {
	for _, s := range steps {
		if results == 0 {
			return s
		}
		n := len(s.Calls)
		if s.Shell != "" {
			n++
		}
		results -= max(n, 1)
		if results < 0 {
			break
		}
	}
	return Step{Text: "nothing further"}
}

// faultOf is what befalls this request.
func (s *Server) faultOf(t turn, side bool) Fault {
	if side {
		return None
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main++
	if s.main <= len(s.options.Faults) {
		return s.options.Faults[s.main-1]
	}
	if t.results >= s.options.After {
		return s.options.Fault
	}
	return None
}
