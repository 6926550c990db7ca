// Package outputs lists what tasks left and removes tasks, for people and for
// programs. It speaks to the server only.
//
// Words. What a file was called inside is bytes that a stranger chose: shown
// escaped to people, and as base64 to programs when it is not UTF-8.
package outputs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Flags are of an output, and the file's own name where it has another.
func Flags(o api.Output) string {
	flags := append([]string{}, o.Flags...)
	if o.RemovedAt != nil {
		flags = append(flags, "removed")
	}
	text := strings.Join(flags, " ")
	path := o.Path
	if raw, err := base64.StdEncoding.DecodeString(o.PathBase64); err == nil && o.PathBase64 != "" {
		path = string(raw)
	}
	if path != "" && "file/"+path != o.Name {
		text = strings.TrimPrefix(text+" was "+path, " ")
	}
	return text
}

// Remove removes a task. With force it asks for the task's end first and waits
// for it.
func Remove(ctx context.Context, c *client.Client, id string, force bool) (api.TaskRemoval, error) {
	r, err := c.RemoveTask(ctx, id)
	var p *api.Problem
	if !force || !errors.As(err, &p) || p.Code != "input.conflict" {
		return r, err
	}
	if err := c.CancelTask(ctx, id); err != nil {
		return r, err
	}
	if err := c.WatchTask(ctx, id, 0, func(api.Event) error { return nil }); err != nil {
		return r, err
	}
	return c.RemoveTask(ctx, id)
}

// PrintRemoval says what is gone, and what stays.
func PrintRemoval(out io.Writer, r api.TaskRemoval) error {
	text := fmt.Sprintf("task %s is removed; %d blobs and logs are gone (%d bytes)", r.Task, r.Freed, r.FreedBytes)
	if r.Shared > 0 {
		text += fmt.Sprintf(", %d stay since other tasks have them too", r.Shared)
	}
	if r.Later > 0 {
		text += fmt.Sprintf(", %d go within a minute or when they can", r.Later)
	}
	if _, err := fmt.Fprintln(out, show.Line(text)); err != nil {
		return err
	}
	for _, s := range r.Stays {
		if _, err := fmt.Fprintln(out, "stays: "+show.Line(s)); err != nil {
			return err
		}
	}
	return nil
}
