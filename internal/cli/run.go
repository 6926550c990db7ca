package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/agentlog"
	"github.com/cofferdam/cofferdam/internal/cli/agents"
	"github.com/cofferdam/cofferdam/internal/cli/approvals"
	"github.com/cofferdam/cofferdam/internal/cli/progress"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/cli/verification"
)

// maxPolicy is what the server takes as the text of a policy.
const maxPolicy = 1 << 20

type runOptions struct {
	prompt, repo, ref, agent  string
	repoCredential            string
	model                     agents.Model
	argv                      []string
	setup, verify, policyFile string
	project                   string
	key                       string
	report                    string
	files                     []string
	detach, followLogs, json  bool
}

func (a *app) runCmd() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   `run [flags] "PROMPT" | run [flags] ["PROMPT"] -- CMD ARGS`,
		Short: "Run an agent on a repository in a sandbox",
		Long: `Run an agent on a repository in a sandbox, and verify its patch in a fresh one.

--repo PATH is read here, as you, and sent as a git bundle of what is committed; an
https URL is cloned inside, through the gateway. After -- stands a plain command that
is the agent; the prompt is in COFFERDAM_PROMPT there. --agent names one that asks a
model: loop is of our own, the others are programs that "cofferdam agent install" puts
on the workers, and acp is any command after -- that speaks the Agent Client Protocol
(acp@NAME: one that runs the installed agent NAME). Its model is reached with --credential of the vault, whose value never
is in a sandbox. Without a policy, sandboxes reach
nothing.

Ctrl-C asks for the task's end and waits for it; a second one leaves. The program ends
with the task's exit code; see cofferdam --help.`,
		Example: `  cofferdam run --verify "go test ./..." -- sh -c "sed -i s/foo/bar/ main.go"
  cofferdam run --repo https://example.com/team/project --policy policy.yaml -- ./fix.sh`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.json = a.json
			if err := o.parse(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			return a.runTask(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.repo, "repo", ".", "path of a git repository, or an https URL")
	f.StringVar(&o.ref, "ref", "", "branch, tag or commit (default HEAD)")
	f.StringVar(&o.repoCredential, "repo-credential", "", "`NAME` of the credential that the checkout of a URL is lent")
	f.StringVar(&o.agent, "agent", "", "`NAME[@VERSION]` of the agent: loop, claude, codex, gemini, opencode or acp (default: the command after --)")
	o.model.Flags(f)
	f.StringVar(&o.setup, "setup", "", "shell command that prepares the workspace")
	f.StringVar(&o.verify, "verify", "", "shell command that judges the patch, in a fresh sandbox")
	f.StringVar(&o.report, "report", "", "test report `file` that the verify command writes (JUnit XML, go test -json, TAP, pytest -v -rA), or - for its output")
	f.StringArrayVar(&o.files, "files", nil, "`glob` of files of the agent's workspace to keep, such as 'dist/**'; may be given again")
	f.StringVar(&o.policyFile, "policy", "", "file that says what the sandboxes may reach")
	f.StringVar(&o.project, "project", "", "`name` of the project whose policy layer counts; see cofferdam policy project")
	f.StringVar(&o.key, "idempotency-key", "", "the same key with the same request gives the same task")
	f.BoolVar(&o.detach, "detach", false, "print the task's id and return")
	f.BoolVarP(&o.followLogs, "follow-logs", "v", false, "show the agent's output as well")
	return cmd
}

// parse takes the prompt and the command from the arguments; dash is how many
// stand before --.
func (o *runOptions) parse(args []string, dash int) error {
	words := args
	if dash >= 0 {
		words, o.argv = args[:dash], args[dash:]
		if len(o.argv) == 0 {
			return usage("no command after --")
		}
	}
	switch {
	case len(words) > 1:
		return usage("%d arguments where one prompt is expected; put it in quotes, and a command after --", len(words))
	case len(words) == 1:
		o.prompt = words[0]
	}
	if o.agent == "" && len(o.argv) > 0 {
		o.agent = "command"
	}
	switch {
	case o.agent == "" && o.project == "": // a project may let the repository name it
		return usage("no agent; give a command after --, or name one with --agent")
	case agents.TakesCommand(o.agent) && len(o.argv) == 0:
		return usage("--agent %s: give the command after --", o.agent)
	case !agents.TakesCommand(o.agent) && len(o.argv) > 0:
		return usage("--agent %s: takes no command after --", o.agent)
	case o.repo == "":
		return usage("--repo: is empty")
	}
	return nil
}

// runJob is one invocation of run.
type runJob struct {
	o        runOptions
	c        *client.Client
	progress *progress.Progress
	logs     io.Writer
	follow   sync.WaitGroup
}

// runTask asks for a task, shows how it goes, and ends with its exit code.
func (a *app) runTask(ctx context.Context, o runOptions) error {
	j := &runJob{o: o, progress: progressOn(a.Err, o.json), logs: a.Err}
	t, err := a.startTask(ctx, j)
	if err != nil {
		return a.away(err)
	}
	if o.detach {
		if o.json {
			return printJSON(a.Out, t)
		}
		_, err := fmt.Fprintln(a.Out, show.Line(t.ID))
		return err
	}
	j.progress.Note("task " + t.ID)
	id := t.ID
	if t, err = j.watch(ctx, id); err != nil {
		return fmt.Errorf("task %s goes on without this program; see cofferdam task show %s: %w", id, id, a.away(err))
	}
	if o.json {
		err = printJSON(a.Out, t)
	} else {
		err = summary(a.Out, t)
	}
	if err != nil {
		return err
	}
	if code := taskExit(t); code != 0 {
		return &exitError{code}
	}
	return nil
}

// taskExit is the exit code for how a task ended.
func taskExit(t api.Task) int {
	switch t.State {
	case api.Succeeded:
		return 0
	case api.Cancelled:
		return api.ExitCode("cancelled")
	}
	if code := api.ExitCode(t.Reason); code != 0 {
		return code
	}
	return 1
}

// startTask does everything up to the task's row in the database.
func (a *app) startTask(ctx context.Context, j *runJob) (api.Task, error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	policy, err := readPolicy(j.o.policyFile, a.In)
	if err != nil {
		return api.Task{}, err
	}
	if j.c, err = a.connected(ctx); err != nil {
		return api.Task{}, err
	}
	repo, err := j.sendRepository(ctx)
	if err != nil {
		return api.Task{}, err
	}
	t, created, err := j.c.CreateTask(ctx, api.TaskRequest{
		Prompt: j.o.prompt, Repo: repo, Setup: j.o.setup, Verify: j.o.verify, Policy: policy, Project: j.o.project,
		Report: j.o.report, Files: j.o.files,
		Agent: j.o.model.Agent(j.o.agent, j.o.argv),
	}, j.o.key)
	if errors.Is(err, context.Canceled) {
		return t, fmt.Errorf("interrupted before the server said that it has the task; `cofferdam task ls` shows whether it has")
	}
	if err == nil && !created {
		j.progress.Note("this key has made a task before; it is the one")
	}
	return t, err
}

func readPolicy(path string, in io.Reader) (string, error) {
	var r io.Reader
	switch path {
	case "":
		return "", nil
	case "-":
		r = in
	default:
		f, err := os.Open(path)
		if err != nil {
			return "", problem("input.policy", "--policy: %v", err)
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	switch {
	case err != nil:
		return "", problem("input.policy", "--policy %s: %v", path, err)
	case len(text) > maxPolicy:
		return "", problem("input.policy", "--policy %s: larger than 1 MiB", path)
	case len(text) == 0:
		return "", problem("input.policy", "--policy %s: is empty; leave --policy out to allow nothing", path)
	}
	return string(text), nil
}

// errLeft is what a second interrupt gives.
var errLeft = errors.New("left by a signal")

// watch shows the task's events until it has ended, and returns it. The first
// interrupt asks for the task's end, the second leaves; so do other signals.
func (j *runJob) watch(ctx context.Context, id string) (api.Task, error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go j.obey(ctx, signals, leave, id)
	err := j.c.WatchTask(ctx, id, 0, func(ev api.Event) error {
		j.event(ctx, id, ev)
		return nil
	})
	j.follow.Wait()
	j.progress.Done()
	switch {
	case errors.Is(context.Cause(ctx), errLeft):
		return api.Task{}, errLeft
	case err != nil:
		return api.Task{}, err
	}
	return j.c.Task(ctx, id)
}

// obey acts on signals.
func (j *runJob) obey(ctx context.Context, signals <-chan os.Signal, leave context.CancelCauseFunc, id string) {
	var asked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == os.Interrupt && sameKey(asked) {
				continue
			}
			if s != os.Interrupt || !asked.IsZero() {
				leave(errLeft)
				return
			}
			asked = time.Now()
			j.progress.Note("asking for the task's end; once more leaves it alone")
			go func() {
				if err := j.c.CancelTask(ctx, id); err != nil && ctx.Err() == nil {
					_, detail := describe(err)
					j.progress.Note("the task could not be asked to end: " + detail)
				}
			}()
		}
	}
}

// sameKey says whether an interrupt is another copy of the one before: those
// who wrap programs send what the terminal has sent already.
func sameKey(before time.Time) bool { return time.Since(before) < 500*time.Millisecond }

// event shows one event.
func (j *runJob) event(ctx context.Context, id string, ev api.Event) {
	switch ev.Type {
	case "stage":
		var s api.Stage
		if json.Unmarshal(ev.Data, &s) != nil {
			return
		}
		j.progress.Stage(s)
		if s.Name == "agent" && s.State == "running" && j.o.followLogs && !j.o.json && j.o.agent == "command" {
			j.followAgent(ctx, id)
		}
	case "agent":
		var e api.AgentEvent
		if j.o.followLogs && !j.o.json && json.Unmarshal(ev.Data, &e) == nil {
			_ = agentlog.Print(j.progress.Through(), e) // to the terminal: there is nobody else to tell
		}
	case "egress":
		var r api.EgressRecord
		if json.Unmarshal(ev.Data, &r) == nil && r.Verdict == "denied" {
			j.progress.Denied(r)
		}
	case "approval":
		var a api.Approval
		if json.Unmarshal(ev.Data, &a) == nil {
			j.progress.Note(approvals.News(a))
		}
	case "task":
		var t api.Task
		if json.Unmarshal(ev.Data, &t) != nil {
			return
		}
		if t.State == api.Waiting {
			j.progress.Note("the task waits: " + t.Text)
		}
		if t.Attempt > 1 {
			j.progress.Attempt(t.Attempt)
		}
	}
}

// followAgent copies the agent's output while the watching goes on.
func (j *runJob) followAgent(ctx context.Context, id string) {
	j.follow.Go(func() {
		w := show.NewEscaper(j.progress.Through())
		_, err := j.c.FollowLogs(ctx, id, client.Log{Stage: "agent", Follow: true}, w)
		_ = w.Close()
		if err != nil && ctx.Err() == nil {
			_, detail := describe(err)
			j.progress.Note("the agent's output broke off: " + detail)
		}
	})
}

// summary says how a task ended and what to do next.
func summary(out io.Writer, t api.Task) error {
	took := show.Span(time.Since(t.CreatedAt))
	if t.EndedAt != nil {
		took = show.Span(t.EndedAt.Sub(t.CreatedAt))
	}
	because := t.Text
	if t.Reason != "" {
		because = t.Reason
		if t.Text != "" {
			because += ": " + t.Text
		}
	}
	pairs := []string{"task", t.ID + " " + t.State + " after " + took, "because", because}
	for _, s := range t.Stages {
		if s.Name == "verify" && s.State != "pending" {
			pairs = append(pairs, "verify", s.State+verification.Brief(t))
		}
	}
	for _, o := range t.Outputs {
		if o.Kind == "patch" {
			pairs = append(pairs, "patch", fmt.Sprintf("%s, %s; cofferdam output get %s %s", size(o.Size), o.Digest, t.ID, o.Name))
		}
	}
	pairs = append(pairs, "logs", "cofferdam task logs "+t.ID, "receipt", "cofferdam task receipt "+t.ID)
	return show.Facts(out, pairs...)
}

// progressOn shows progress on w, or nowhere.
func progressOn(w io.Writer, silent bool) *progress.Progress {
	if silent {
		w = io.Discard
	}
	return progress.New(w, colour(w))
}
