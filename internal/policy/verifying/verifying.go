// Package verifying merges what the layers of a policy say of how patches are
// verified.
//
// Words. A project that says it compares with the base, or that what is flaky fails,
// is not overruled by a task; nor is an operator whose ceiling says that it fails.
package verifying

import (
	"fmt"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Said is what one layer says; what it doesn't is empty.
type Said struct {
	task.Verifying
	Line int // of the last of it
}

// Field is one setting and its words, the stricter first where one is.
type Field struct {
	Name   string
	Words  []string
	Strict bool
	Of     func(*task.Verifying) *string
}

// Fields are all settings.
func Fields() []Field {
	return []Field{
		{"compare", []string{"base", "none"}, true, func(v *task.Verifying) *string { return &v.Compare }},
		{"rerun", []string{"once", "none"}, false, func(v *task.Verifying) *string { return &v.Rerun }},
		{"flaky", []string{"fails", "passes"}, true, func(v *task.Verifying) *string { return &v.Flaky }},
	}
}

// Origin is who said a setting, or who says more than it may.
type Origin struct {
	Field string // such as verify.flaky
	Text  string // its value, or what is wrong
	Layer string
	Line  int
}

// Merge gives what holds, where each setting comes from, and what asks for more
// than a layer above allows. flakyFails is the operator's ceiling.
func Merge(project, mine Said, flakyFails bool) (sum task.Verifying, from, wrong []Origin) {
	for _, f := range Fields() {
		above, below := *f.Of(&project.Verifying), *f.Of(&mine.Verifying)
		o := Origin{Field: "verify." + f.Name, Text: above, Layer: task.LayerProject, Line: project.Line}
		if below != "" {
			o.Text, o.Layer, o.Line = below, task.LayerTask, mine.Line
		}
		switch {
		case f.Strict && above == f.Words[0] && below != "" && below != above:
			o.Text = fmt.Sprintf("%s is less strict than %s, which the project says", below, above)
			wrong = append(wrong, o)
		case f.Name == "flaky" && flakyFails && o.Text == "passes":
			o.Text = "passes is more than the operator's ceiling allows"
			wrong = append(wrong, o)
		case o.Text != "":
			*f.Of(&sum) = o.Text
			from = append(from, o)
		}
	}
	return sum, from, wrong
}
