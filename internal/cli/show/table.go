package show

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Table prints rows under a head, in columns as wide as they need to be. What
// is printed is shown escaped, since much of it was named inside.
func Table(w io.Writer, head []string, rows [][]string) error {
	all := append([][]string{head}, rows...)
	width := make([]int, len(head))
	for i, row := range all {
		for j := range row {
			if i > 0 {
				row[j] = Line(row[j])
			}
			width[j] = max(width[j], utf8.RuneCountInString(row[j]))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[j]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Facts prints names and values in two columns, leaving out empty values.
func Facts(w io.Writer, pairs ...string) error {
	width := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-*s  %s\n", width, pairs[i], Line(pairs[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// Span is a duration for people.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
