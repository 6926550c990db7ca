package gotest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

func line(format string, args ...any) string { return fmt.Sprintf(format, args...) + "\n" }

func TestHostileEvents(t *testing.T) {
	run := line(`{"Action":"start","Package":"p"}`) + line(`{"Action":"run","Package":"p","Test":"T"}`)
	for name, c := range map[string]struct {
		text    string
		want    report.Counts
		foreign int
	}{
		"garbage between":  {run + "\xff\xfe\n{\"Action\":\n{}\n" + line(`{"Action":"pass","Package":"p","Test":"T"}`) + line(`{"Action":"pass","Package":"p"}`), report.Counts{Tests: 1}, 3},
		"wrong types":      {run + line(`{"Action":"pass","Package":["p"],"Test":"T"}`), report.Counts{Tests: 1, Errors: 1}, 1},
		"never ends":       {run, report.Counts{Tests: 1, Errors: 1}, 0},
		"package dies":     {line(`{"Action":"start","Package":"p"}`) + line(`{"Action":"fail","Package":"p","Elapsed":-1}`), report.Counts{Tests: 1, Errors: 1}, 0},
		"package hangs":    {line(`{"Action":"start","Package":"p"}`), report.Counts{Tests: 1, Errors: 1}, 0},
		"long line":        {run + `{"Action":"pass","Package":"p","Test":"T","Output":"` + strings.Repeat("x", report.MaxLine) + "\"}\n" + line(`{"Action":"pass","Package":"p","Test":"T"}`) + line(`{"Action":"pass","Package":"p"}`), report.Counts{Tests: 1}, 1},
		"ends twice":       {run + line(`{"Action":"pass","Package":"p","Test":"T"}`) + line(`{"Action":"fail","Package":"p","Test":"T"}`), report.Counts{Tests: 2, Failures: 1}, 0},
		"unknown action":   {run + line(`{"Action":"win","Package":"p","Test":"T"}`), report.Counts{Tests: 1, Errors: 1}, 1},
		"duplicate fields": {run + line(`{"Action":"pass","Action":"fail","Package":"p","Test":"T"}`), report.Counts{Tests: 1, Failures: 1}, 0},
		"deep":             {run + `{"Action":` + strings.Repeat("[", 100000) + "\n", report.Counts{Tests: 1, Errors: 1}, 1},
	} {
		r, err := Parse(strings.NewReader(c.text))
		if err != nil || r.Counts != c.want || r.Foreign != c.foreign {
			t.Errorf("%s: %+v, %d foreign, %v", name, r.Counts, r.Foreign, err)
		}
	}
	for _, text := range []string{"", "hello\n", "{}\n"} {
		if _, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a report", text)
		}
	}
	var many strings.Builder
	for i := range report.MaxTests + 1 {
		many.WriteString(line(`{"Action":"run","Package":"p","Test":"T%d"}`, i))
	}
	if _, err := Parse(strings.NewReader(many.String())); !report.IsLimit(err) {
		t.Errorf("many: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"Action":"run","Package":"p","Test":"T"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T","Elapsed":0.1}`))
	f.Add([]byte(`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Parse(bytes.NewReader(in))
		if err == nil && (r.Tests < r.Failures+r.Errors+r.Skipped || len(r.List) > r.Tests) {
			t.Errorf("%q: %+v", in, r)
		}
	})
}
