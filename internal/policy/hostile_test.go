package policy

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// times repeats a line with its number until it is as long as a file may be.
func times(line string, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size-len(line)-8; i++ {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

// hostile are bodies of policy files that mean to cost more than they are.
func hostile(size int) map[string]string {
	size -= 100
	network := func(rules string) string { return "agent: {network: {allow: [" + rules + "]}}\n" }
	half := func(line, other string) string { return network(times(line, size/2) + times(other, size/2)) }
	return map[string]string{
		"all wrong":        network(strings.Repeat("1,", size/2)),
		"unknown fields":   times("k%d: 1\n", size),
		"one long key":     strings.Repeat("k", size) + ": 1\n",
		"a long host":      network("{host: " + strings.Repeat("ä", size/3) + "}"),
		"keys that clash":  network(times("{host: a.b, credential: c%d},", size)),
		"splice and see":   half("{host: a.b, ports: [443, %d], protocol: tls},", "{host: a.b, ports: [443, %d], methods: [GET]},"),
		"deep":             "agent: " + strings.Repeat("[", size-10),
		"aliases":          "agent: &a [x]\nsetup: [" + strings.Repeat("*a,", size/4) + "]\n",
		"many rules":       network(times("{host: a%d.b},", size)),
		"invalid controls": "\"\\e[2J\\u202e\": 1\n",
	}
}

// What is told of a file stays short, however wrong it is: a repository's file
// is a stranger's, and what is told of it is kept with the task.
func TestHostileFilesAreToldBriefly(t *testing.T) {
	const most = (maxErrors + 1) * (maxError + 10)
	for name, body := range hostile(maxFile) {
		_, err := Compile(task.Spec{Policy: "version: 1\n" + body}, task.Layers{})
		if name != "many rules" && err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if text := fmt.Sprint(err); len(text) > most || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes of error", name, len(text))
		}
	}
	offer := "version: 1\nrepository:\n  network: [{host: a.b}]\n"
	for name, body := range hostile(MaxRepositoryFile) {
		for _, operator := range []string{"", offer} {
			plan, err := Compile(task.Spec{}, task.Layers{Operator: operator, Repository: "version: 1\n" + body})
			if err != nil {
				t.Errorf("%s: a stranger's file failed the task: %.200v", name, err)
			}
			if text := strings.Join(plan.Narrowed, ""); len(text) > 2*most || text == "" || !utf8.ValidString(text) {
				t.Errorf("%s: %d bytes of what it is not given", name, len(text))
			}
		}
	}
}

// Errors beyond those that are told still refuse.
func TestManyErrorsRefuse(t *testing.T) {
	text := "version: 1\nsetup: {network: {allow: [" + strings.Repeat("1,", 30) + "]}}\nagent: {network: {allow: [{host: a.b}, {host: \"*\"}]}}\n"
	_, err := Compile(task.Spec{Policy: text}, task.Layers{})
	if err == nil || !strings.Contains(err.Error(), "and 11 more") {
		t.Errorf("%v", err)
	}
}
