// Package history shows what was tried more than once in a task, and what the
// repository asked for and was not given.
package history

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Print shows every run of every stage when something was tried more than once,
// and what the repository's layer is not given. It prints nothing otherwise.
func Print(out io.Writer, t api.Task) error {
	if retried(t) {
		rows := make([][]string, 0, len(t.History))
		for _, r := range t.History {
			rows = append(rows, []string{strconv.Itoa(r.Attempt), strconv.Itoa(r.Round), r.Stage, r.State, r.Reason, took(r), r.Sandbox, r.Text})
		}
		fmt.Fprintln(out)
		if err := show.Table(out, []string{"ATTEMPT", "ROUND", "STAGE", "STATE", "REASON", "TIME", "SANDBOX", "TEXT"}, rows); err != nil {
			return err
		}
	}
	if len(t.Narrowed) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(t.Narrowed))
	for _, text := range t.Narrowed {
		rows = append(rows, []string{text})
	}
	fmt.Fprintln(out)
	return show.Table(out, []string{"ASKED FOR BY THE REPOSITORY'S .cofferdam/task.yaml, AND NOT GIVEN"}, rows)
}

func retried(t api.Task) bool {
	for _, r := range t.History {
		if r.Attempt > 1 || r.Round > 1 {
			return true
		}
	}
	return false
}

func took(r api.StageRun) string {
	if r.StartedAt == nil || r.EndedAt == nil {
		return ""
	}
	return show.Span(r.EndedAt.Sub(*r.StartedAt).Round(time.Millisecond))
}
