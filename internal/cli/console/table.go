package console

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Statuses asks how a sandbox's commands stand: the one that is named, or all.
func Statuses(ctx context.Context, c *client.Client, sandbox string, command []string) ([]api.CommandStatus, error) {
	if len(command) == 0 {
		return c.Commands(ctx, sandbox)
	}
	st, err := c.Command(ctx, sandbox, command[0])
	return []api.CommandStatus{st}, err
}

// Table prints commands, and beneath each the processes of it that live.
func Table(out io.Writer, list []api.CommandStatus) error {
	var rows [][]string
	for _, st := range list {
		rows = append(rows, []string{st.ID, "", state(st), strconv.FormatInt(st.Output, 10), ""})
		for _, p := range st.Processes {
			rows = append(rows, []string{"", strconv.Itoa(p.PID), p.State, "", p.Command})
		}
	}
	return show.Table(out, []string{"COMMAND", "PID", "STATE", "OUTPUT", "PROCESS"}, rows)
}

// state says in a word how a command stands.
func state(st api.CommandStatus) string {
	switch {
	case st.Phase == api.CommandRunning:
		return "running"
	case st.Error != "":
		return "not started"
	case st.Reason != "":
		return st.Reason
	case st.Signal != 0:
		return fmt.Sprintf("signal %d", st.Signal)
	}
	return fmt.Sprintf("exit %d", st.ExitCode)
}
