// Package verification shows what was verified of a task's patch: the runs, what they
// say differently, and what the patch does to tests. Names and messages were chosen
// by who wrote the tests; they are shown escaped.
package verification

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// most bounds how many tests of one list are shown.
const most = 20

// Brief is the verification in a few words that go on after its state, or nothing.
func Brief(t api.Task) string {
	v := t.Verification
	if v == nil {
		return ""
	}
	var parts []string
	if v.Outcome == "flaky" {
		parts = append(parts, "flaky")
	}
	if c := v.Comparison; c != nil {
		for _, l := range []struct {
			word string
			n    int
		}{
			{"newly failing", c.NewlyFailing.Count}, {"newly passing", c.NewlyPassing.Count}, {"still failing", c.StillFailing.Count},
			{"newly skipped", c.NewlySkipped.Count}, {"removed", c.Removed.Count},
		} {
			if l.n > 0 {
				parts = append(parts, strconv.Itoa(l.n)+" "+l.word)
			}
		}
		if len(parts) == 0 {
			parts = append(parts, "no test differs")
		}
		parts[len(parts)-1] += " compared with the base"
	}
	if n := len(v.Findings) + v.More; n > 0 {
		parts = append(parts, fmt.Sprintf("%d findings about tests", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// Print shows the verification of a task that has one.
func Print(out io.Writer, t api.Task) error {
	v := t.Verification
	if v == nil {
		return nil
	}
	fmt.Fprintln(out)
	if err := show.Facts(out, "verification", cmp.Or(v.Outcome, v.Problem)+Brief(t), "evidence", v.Digest, "flags", strings.Join(v.Flags, " "), "not compared", v.Uncompared, "patch", v.Unreadable); err != nil {
		return err
	}
	rows := make([][]string, 0, len(v.Runs))
	for _, r := range v.Runs {
		row := []string{r.Run, "", "", "", "", cmp.Or(r.Text, r.Problem)}
		if r.ExitCode != nil {
			row[1] = strconv.Itoa(*r.ExitCode)
		}
		if c := r.Tests; c != nil {
			row[2], row[3], row[4] = strconv.Itoa(c.Tests), strconv.Itoa(c.Failures+c.Errors), strconv.Itoa(c.Skipped)
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		fmt.Fprintln(out)
		if err := show.Table(out, []string{"RUN", "EXIT", "TESTS", "FAILED", "SKIPPED", "TEXT"}, rows); err != nil {
			return err
		}
	}
	if rows = tests(v); len(rows) > 0 {
		fmt.Fprintln(out)
		if err := show.Table(out, []string{"TESTS", "SUITE", "NAME", "MESSAGE"}, rows); err != nil {
			return err
		}
	}
	if len(v.Findings) == 0 {
		return nil
	}
	rows = rows[:0]
	for _, f := range v.Findings {
		rows = append(rows, []string{f.Kind, f.Path, fmt.Sprintf("-%d +%d", f.Removed, f.Added)})
	}
	if v.More > 0 {
		rows = append(rows, []string{"…", fmt.Sprintf("%d more", v.More), ""})
	}
	fmt.Fprintln(out)
	return show.Table(out, []string{"FINDING", "FILE OF TESTS", "LINES"}, rows)
}

// tests are the rows of the tests that differ.
func tests(v *api.Verification) [][]string {
	lists := []struct {
		word string
		list *api.TestNames
	}{{"flaky", v.Flaky}}
	if c := v.Comparison; c != nil {
		lists = append(lists, []struct {
			word string
			list *api.TestNames
		}{
			{"newly failing", &c.NewlyFailing}, {"newly passing", &c.NewlyPassing}, {"still failing", &c.StillFailing},
			{"newly skipped", &c.NewlySkipped}, {"removed", &c.Removed}, {"not run", &c.NotRun},
		}...)
	}
	var rows [][]string
	for _, l := range lists {
		if l.list == nil {
			continue
		}
		for i, t := range l.list.First {
			if i == most {
				break
			}
			rows = append(rows, []string{l.word, t.Suite, cmp.Or(t.Name, "(as a whole)"), t.Message})
		}
		if rest := l.list.Count - min(most, len(l.list.First)); rest > 0 {
			rows = append(rows, []string{l.word, "", fmt.Sprintf("(%d more; cofferdam output get TASK evidence)", rest), ""})
		}
	}
	return rows
}
