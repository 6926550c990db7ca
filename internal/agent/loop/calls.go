package loop

import (
	"context"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxStrange is how many calls in a row may be none before the agent has failed.
const maxStrange = 3

// maxCalls bounds the calls of one answer.
const maxCalls = 64

// calls carries out the calls of an answer, one after the other.
func (r *run) calls(ctx context.Context, turn int, answer Answer) ([]Result, error) {
	if len(answer.Calls) > maxCalls {
		return nil, task.Fail(task.AgentFailed, fmt.Sprintf("the model made %d calls at once; at most %d are carried out", len(answer.Calls), maxCalls), nil)
	}
	have := map[int]stage.Call{}
	for _, t := range r.turns {
		if t.Number == turn {
			for _, c := range t.Calls {
				have[c.Number] = c
			}
		}
	}
	var results []Result
	for i, c := range answer.Calls {
		w := &work{run: r, turn: turn, row: stage.Call{
			Number: i + 1, Tool: c.Name, Input: c.Input, State: stage.CallIntended,
			Command: fmt.Sprintf("%s.%d.%d.%d", r.job.Task, r.job.Attempt, turn, i+1),
		}}
		if old, ok := have[i+1]; ok {
			w.row = old
		}
		if err := r.tellCall(ctx, turn, w.row); err != nil {
			return nil, err
		}
		in, err := parse(c)
		if err != nil {
			r.strange++
			w.row.Command = ""
			err = w.done(ctx, err.Error(), true)
		} else {
			r.strange = 0
			err = w.do(ctx, in)
		}
		if err != nil {
			return nil, err
		}
		if err := r.tellResult(ctx, turn, w.row); err != nil {
			return nil, err
		}
		if r.strange >= maxStrange {
			return nil, task.Fail(task.AgentFailed, fmt.Sprintf("the model's last %d calls were none: %s", maxStrange, short(w.row.Result, 200)), nil)
		}
		results = append(results, Result{ID: c.ID, Text: w.row.Result, Failed: w.row.Failed})
	}
	return results, nil
}

// work is one call being carried out.
type work struct {
	*run
	turn int
	row  stage.Call
}

// save writes down where the call stands.
func (w *work) save(ctx context.Context) error {
	return w.Turns.SetCall(ctx, w.job.Task, w.job.Attempt, w.turn, w.row)
}

// done writes down what the call came to; one that is done stays as it is.
func (w *work) done(ctx context.Context, text string, failed bool) error {
	if w.row.State == stage.CallDone {
		return nil
	}
	w.row.State, w.row.Result, w.row.Failed = stage.CallDone, text, failed
	return w.save(ctx)
}

// do carries the call out, from where the journal has it.
func (w *work) do(ctx context.Context, in input) error {
	if w.row.State == stage.CallDone {
		return nil
	}
	if w.row.Tool != toolEdit { // which looks first at what it would change
		if ok, err := w.may(ctx, in); !ok {
			return err
		}
	}
	switch w.row.Tool {
	case toolShell:
		return w.shell(ctx, in)
	case toolRead:
		return w.read(ctx, in)
	case toolWrite:
		return w.write(ctx, in)
	case toolEdit:
		return w.edit(ctx, in)
	default:
		return w.search(ctx, in)
	}
}

// start runs the call's command, or attaches to it: that it is about to run is
// written down first.
func (w *work) start(ctx context.Context, argv []string, limit time.Duration, out *capture) (stage.Result, error) {
	if w.row.State == stage.CallIntended {
		w.row.State = stage.CallStarted
		if err := w.save(ctx); err != nil {
			return stage.Result{}, err
		}
	}
	return w.run.command(ctx, w.row.Command, argv, limit, out)
}

// command runs a command in the job's sandbox. What the infrastructure did wrong
// is an error; how the command ended is a result.
func (r *run) command(ctx context.Context, id string, argv []string, limit time.Duration, out *capture) (stage.Result, error) {
	res, err := r.job.Hands.Run(ctx, sandbox.Command{
		ID: id, Argv: argv, Timeout: limit,
		Env: r.job.Env,
	}, out)
	if err != nil {
		return res, err
	}
	if c := res.Reason.Class(); c == "infra" || c == "cancelled" {
		return res, task.Fail(res.Reason, "a command of the agent was ended", nil)
	}
	if res.Phase != sandbox.CommandExited {
		return res, task.Fail(task.InfraInternal, "a command of the agent did not end", nil)
	}
	return res, nil
}

// ending says how a command ended, unless it ended well.
func ending(res stage.Result, limit time.Duration) string {
	s := ""
	switch {
	case res.Error != "":
		return "[it could not be started: " + clean(res.Error) + "]"
	case res.TimedOut:
		s = fmt.Sprintf("[it was ended after %s]", limit)
	case res.Reason != "":
		s = "[it was ended: " + string(res.Reason) + "]"
	case res.Signal != 0:
		s = fmt.Sprintf("[killed by signal %d]", res.Signal)
	case res.ExitCode != 0:
		s = fmt.Sprintf("[exit code %d]", res.ExitCode)
	default:
		return ""
	}
	if res.EpochBefore != res.EpochAfter {
		s += " [the way out of the sandbox was restarted meanwhile; connections broke]"
	}
	return s
}

// joined is text and what follows it on a line of its own.
func joined(text, more string) string {
	if text == "" || more == "" {
		return text + more
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	return text + more
}

const shellScript = `if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; fi; exec sh -c "$1"`

func (w *work) shell(ctx context.Context, in input) error {
	limit := shellDefault
	if in.TimeoutSeconds > 0 {
		limit = time.Duration(in.TimeoutSeconds) * time.Second
	}
	var out capture
	res, err := w.start(ctx, []string{"sh", "-c", shellScript, toolShell, in.Command}, limit, &out)
	if err != nil {
		return err
	}
	how := ending(res, limit)
	text := joined(out.text(), how)
	if text == "" {
		text = "[no output]"
	}
	return w.done(ctx, text, how != "")
}

const searchScript = `pattern=$1 path=$2 glob=$3
if command -v rg >/dev/null 2>&1; then
  if [ -n "$glob" ]; then set -- -g "$glob"; else set --; fi
  exec rg --no-config --no-heading --line-number --hidden -g '!.git' --sort path "$@" -e "$pattern" -- "$path"
fi
if [ -n "$glob" ]; then set -- --include="$glob"; else set --; fi
exec grep -rnIE --exclude-dir=.git "$@" -e "$pattern" -- "$path"`

func (w *work) search(ctx context.Context, in input) error {
	var out capture
	res, err := w.start(ctx, []string{"sh", "-c", searchScript, toolSearch, in.Pattern, in.Path, in.Glob}, fileTime, &out)
	if err != nil {
		return err
	}
	if res.ExitCode == 1 && out.size == 0 {
		return w.done(ctx, "[no line matches]", false)
	}
	how := ending(res, fileTime)
	return w.done(ctx, joined(out.text(), how), how != "")
}
