// Package acptest is a small agent that speaks the Agent Client Protocol, by the
// protocol's own library, for tests of its client. It asks no model: what it does
// rides in the prompt, a JSON list of acts.
package acptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

// Act is one thing that the agent does in its turn. One field is set.
type Act struct {
	Say   string `json:"say,omitempty"`   // in two pieces
	Think string `json:"think,omitempty"` // a thought
	Run   string `json:"run,omitempty"`   // a command line, after asking to be allowed
	Need  string `json:"need,omitempty"`  // waits until the file is there
	Write string `json:"write,omitempty"` // as it stands, on standard output
	Read  string `json:"read,omitempty"`  // a file, of its client: which has none
	Stop  string `json:"stop,omitempty"`  // ends the turn with this reason
	Fail  string `json:"fail,omitempty"`  // ends it with an error
	Exit  int    `json:"exit,omitempty"`  // ends the process
	Stay  bool   `json:"stay,omitempty"`  // the process outlives its connection
	Flood int    `json:"flood,omitempty"` // asks its client so often for what it has not
}

// Prompt writes acts as a prompt.
func Prompt(acts ...Act) string {
	b, err := json.Marshal(acts)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(b)
}

// Options change what the agent is like.
type Options struct {
	Loads bool   // it can go on with a session
	Mode  string // that a session begins in
	Model bool   // sessions have a choice of models
}

// Serve is the agent on these streams until its client closes the first. acts
// are done in a turn whose prompt has none: after a session was loaded.
func Serve(in io.Reader, out io.Writer, o Options, acts []Act) {
	a := &agent{options: o, acts: acts, out: out}
	a.conn = acp.NewAgentSideConnection(a, out, in)
	a.conn.SetLogger(slog.New(slog.DiscardHandler))
	<-a.conn.Done()
	a.mu.Lock()
	stay := a.stay
	a.mu.Unlock()
	for stay {
		time.Sleep(time.Hour) // until it is killed
	}
}

type agent struct {
	options Options
	acts    []Act
	out     io.Writer
	conn    *acp.AgentSideConnection
	calls   int
	mu      sync.Mutex
	mode    string
	model   string
	stay    bool
}

func (a *agent) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, nil
}

func (a *agent) Initialize(_ context.Context, r acp.InitializeRequest) (acp.InitializeResponse, error) {
	if r.ClientCapabilities.Terminal || r.ClientCapabilities.Fs.ReadTextFile || r.ClientCapabilities.Fs.WriteTextFile {
		return acp.InitializeResponse{}, errors.New("the client offers what it must not")
	}
	return acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber, AgentCapabilities: acp.AgentCapabilities{LoadSession: a.options.Loads},
	}, nil
}

func (a *agent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *agent) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, nil
}

func (a *agent) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, nil
}

func (a *agent) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, nil
}

func (a *agent) NewSession(_ context.Context, r acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	if r.Cwd != "/workspace" {
		return acp.NewSessionResponse{}, fmt.Errorf("a session in %q", r.Cwd)
	}
	out := acp.NewSessionResponse{SessionId: "session-1"}
	if a.options.Mode != "" {
		a.mode = a.options.Mode
		out.Modes = &acp.SessionModeState{CurrentModeId: acp.SessionModeId(a.mode), AvailableModes: []acp.SessionMode{
			{Id: acp.SessionModeId(a.mode), Name: a.mode}, {Id: "default", Name: "asks"},
		}}
	}
	if a.options.Model {
		out.Models = &acp.SessionModelState{CurrentModelId: "small", AvailableModels: []acp.ModelInfo{{ModelId: "small", Name: "small"}, {ModelId: "large", Name: "large"}}}
	}
	return out, nil
}

// LoadSession tells what was said before, and goes on.
func (a *agent) LoadSession(ctx context.Context, r acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	if r.SessionId != "session-1" {
		return acp.LoadSessionResponse{}, fmt.Errorf("no session %q", r.SessionId)
	}
	return acp.LoadSessionResponse{}, a.tell(ctx, acp.UpdateAgentMessageText("said long ago"))
}

func (a *agent) SetSessionMode(_ context.Context, r acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	a.mode = string(r.ModeId)
	return acp.SetSessionModeResponse{}, nil
}

func (a *agent) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, errors.New("no options")
}

func (a *agent) UnstableSetSessionModel(_ context.Context, r acp.UnstableSetSessionModelRequest) (acp.UnstableSetSessionModelResponse, error) {
	a.model = string(r.ModelId)
	return acp.UnstableSetSessionModelResponse{}, nil
}

func (a *agent) Prompt(ctx context.Context, r acp.PromptRequest) (acp.PromptResponse, error) {
	acts := a.acts
	for _, b := range r.Prompt {
		var own []Act
		if b.Text != nil && json.Unmarshal([]byte(b.Text.Text), &own) == nil {
			acts = own
		}
	}
	if err := a.tell(ctx, acp.UpdateAgentThoughtText("mode "+a.mode+", model "+a.model)); err != nil {
		return acp.PromptResponse{}, err
	}
	for _, act := range acts {
		if act.Stop != "" {
			return acp.PromptResponse{StopReason: acp.StopReason(act.Stop)}, nil
		}
		if err := a.do(ctx, act); err != nil {
			return acp.PromptResponse{}, err
		}
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn, Usage: &acp.Usage{InputTokens: 100, OutputTokens: 20, TotalTokens: 120}}, nil
}

func (a *agent) tell(ctx context.Context, u acp.SessionUpdate) error {
	return a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: "session-1", Update: u})
}

func (a *agent) do(ctx context.Context, act Act) error {
	switch {
	case act.Say != "":
		half := len(act.Say) / 2
		return errors.Join(a.tell(ctx, acp.UpdateAgentMessageText(act.Say[:half])), a.tell(ctx, acp.UpdateAgentMessageText(act.Say[half:])))
	case act.Think != "":
		return a.tell(ctx, acp.UpdateAgentThoughtText(act.Think))
	case act.Run != "":
		return a.command(ctx, act.Run)
	case act.Need != "":
		for {
			if _, err := os.Stat(act.Need); err == nil {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
	case act.Write != "":
		_, err := io.WriteString(a.out, act.Write)
		return err
	case act.Read != "":
		if r, err := a.conn.ReadTextFile(ctx, acp.ReadTextFileRequest{SessionId: "session-1", Path: act.Read}); err == nil {
			return fmt.Errorf("the client gave %d bytes of %s", len(r.Content), act.Read)
		}
	case act.Fail != "":
		return acp.NewInternalError(map[string]any{"error": act.Fail})
	case act.Exit != 0:
		os.Exit(act.Exit)
	case act.Stay:
		a.mu.Lock()
		a.stay = true
		a.mu.Unlock()
	}
	for i := range act.Flood {
		if _, err := fmt.Fprintf(a.out, `{"jsonrpc":"2.0","id":"flood-%d","method":"fs/read_text_file"}`+"\n", i); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command line after it was allowed; one that is not is left out.
func (a *agent) command(ctx context.Context, line string) error {
	a.calls++
	id := acp.ToolCallId("call-" + strconv.Itoa(a.calls))
	if err := a.tell(ctx, acp.StartToolCall(id, line, acp.WithStartKind(acp.ToolKindExecute), acp.WithStartStatus(acp.ToolCallStatusPending))); err != nil {
		return err
	}
	allowed, err := a.conn.RequestPermission(ctx, acp.RequestPermissionRequest{
		SessionId: "session-1", ToolCall: acp.ToolCallUpdate{ToolCallId: id, RawInput: map[string]any{"command": line}},
		Options: []acp.PermissionOption{
			{OptionId: "no", Kind: acp.PermissionOptionKindRejectOnce, Name: "No"}, {OptionId: "yes", Kind: acp.PermissionOptionKindAllowOnce, Name: "Yes"},
		},
	})
	if err != nil {
		return err
	}
	if allowed.Outcome.Selected == nil || allowed.Outcome.Selected.OptionId != "yes" {
		return a.tell(ctx, acp.UpdateToolCall(id, acp.WithUpdateStatus(acp.ToolCallStatusFailed), acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock("not allowed"))})))
	}
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	status := acp.ToolCallStatusCompleted
	if err != nil {
		status = acp.ToolCallStatusFailed
	}
	return a.tell(ctx, acp.UpdateToolCall(id, acp.WithUpdateStatus(status), acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock(string(out)))})))
}
