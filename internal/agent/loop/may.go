package loop

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// use is the call as it would be carried out: what the tool makes of its input,
// not how the model wrote it.
func (w *work) use(in input) (task.ToolAsk, error) {
	u := task.ToolAsk{Agent: "loop", Tool: w.row.Tool, Kind: task.ToolKind(w.row.Tool), Before: w.row.Before}
	takes := map[string]any{}
	switch w.row.Tool {
	case toolShell:
		u.Argv, u.Dir = []string{"bash", "-c", in.Command}, "/workspace"
		takes["timeout_seconds"] = in.TimeoutSeconds
	case toolRead:
		takes["path"], takes["offset"], takes["limit"] = in.Path, in.Offset, in.Limit
	case toolWrite:
		takes["path"], takes["content"] = in.Path, *in.Content
	case toolEdit:
		takes["path"], takes["old"], takes["new"], takes["all"] = in.Path, in.Old, *in.New, in.All
	default:
		takes["pattern"], takes["path"], takes["glob"] = in.Pattern, in.Path, in.Glob
	}
	var err error
	u.Input, err = json.Marshal(takes)
	return u, err
}

// may says whether the call may be carried out, and waits until that is known. One
// that may not is done: the model is told why. What was started was allowed.
func (w *work) may(ctx context.Context, in input) (bool, error) {
	if w.job.Gate == nil || w.row.State != stage.CallIntended {
		return w.row.State != stage.CallDone, nil
	}
	u, err := w.use(in)
	if err != nil {
		return false, err
	}
	id := fmt.Sprintf("%d/%d", w.turn, w.row.Number)
	a, err := w.job.Gate.May(ctx, "loop/"+id, u)
	if err != nil {
		return false, err
	}
	text := a.Text
	if a.Approval != "" {
		text += "; approval " + a.Approval
	}
	if err := w.tell(ctx, id+"/permission", task.AgentEvent{Type: "permission", Call: id, Tool: w.row.Tool, Text: text, Failed: !a.Allow}); err != nil || a.Allow {
		return err == nil, err
	}
	return false, w.refused(ctx, a.Text)
}

// refused ends a call that may not be carried out.
func (w *work) refused(ctx context.Context, why string) error {
	w.row.Command = "" // none was started
	return w.done(ctx, "[not done: "+why+". Go on without it, or ask for less.]", true)
}

// mayEver says whether policy leaves any way to a call that reads before it is
// known what it would do.
func (w *work) mayEver(ctx context.Context, in input) (bool, error) {
	if w.job.Gate == nil {
		return true, nil
	}
	u, err := w.use(in)
	if err != nil {
		return false, err
	}
	if d := w.job.Gate.Judge(u); d.Verdict.Rank() > 0 {
		return true, nil
	}
	return w.may(ctx, in)
}
