package outputs

import (
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Findings lists in what the outputs may bite; nothing when nothing was found.
func Findings(out io.Writer, list []api.Output) error {
	var rows [][]string
	for _, o := range list {
		for _, f := range o.Findings {
			at := f.Path
			if f.Line > 0 {
				at = fmt.Sprintf("%s:%d", f.Path, f.Line)
			}
			rows = append(rows, []string{f.ID, f.Verdict, f.Severity, at, f.Why})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return show.Table(out, []string{"FOUND", "POLICY", "SEVERITY", "WHERE", "WHY"}, rows)
}
