//go:build root && slow

package e2e

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/agent/gemini"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/agent/opencode"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The slower two of the harnesses.
func TestOpencodeAndGemini(t *testing.T) { mendWith(t, harnessCases()[2:]...) }

// The gateway is killed under opencode: it goes on by its own session. (Gemini's
// own line names no session, so it begins anew; by ACP it goes on, see below.)
func TestOpencodeIsResumed(t *testing.T) {
	resumes(t, harnessCases()[2], harnessCase.agent, checkHarness)
}

// acpGemini is Gemini's command line as one that speaks the protocol.
func acpGemini(c harnessCase, s *scripted) api.Agent {
	agent := c.agent(s)
	agent.Name, agent.Version, agent.Provider = "acp", "gemini", "google"
	agent.Argv = []string{"sh", "-c", `mkdir -p "$HOME/.gemini" && cat > "$HOME/.gemini/settings.json" <<'END'
` + gemini.Settings + `END
GEMINI_CLI_NO_RELAUNCH=1 GEMINI_CLI_TRUST_WORKSPACE=true exec node ` + catalog.Program("gemini") + ` -m gemini-2.5-pro --skip-trust --acp`}
	return agent
}

// acpOpencode is opencode's.
func acpOpencode(c harnessCase, s *scripted) api.Agent {
	agent := c.agent(s)
	agent.Name, agent.Version, agent.Provider, agent.Model = "acp", "opencode", "openai", ""
	provider, ok := task.AgentSpec{Provider: "openai", ModelURL: agent.ModelURL}.ProviderOf()
	if !ok {
		panic("no provider openai")
	}
	config, err := opencode.Config(provider, c.model, "ask")
	if err != nil {
		panic(err)
	}
	agent.Argv = append([]string{"env", "OPENCODE_CONFIG_CONTENT=" + config}, opencode.Environment()...)
	agent.Argv = append(agent.Argv, catalog.Program("opencode"), "acp")
	return agent
}

// checkACP looks at what such an agent left.
func checkACP(t *testing.T, s *scripted, _ harnessCase, got api.Task) {
	t.Helper()
	must(t, s.env, got, api.Succeeded, "")
	for _, kind := range []string{"call", "permission", "result", "text", "end"} {
		if list := kinds(agentEvents(t, s.env, got.ID)); !slices.Contains(list, kind) {
			t.Errorf("no event of type %s among %v", kind, list)
		}
	}
	sawOnlyTheRealKey(t, s)
}

// Real agents that speak the Agent Client Protocol are run by their command
// lines.
func TestGeminiSpeaksACP(t *testing.T)   { speaks(t, harnessCases()[3], acpGemini) }
func TestOpencodeSpeaksACP(t *testing.T) { speaks(t, harnessCases()[2], acpOpencode) }

func speaks(t *testing.T, c harnessCase, agent func(harnessCase, *scripted) api.Agent) {
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, c)
	id := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: bundle(t, s.env, small(t)), Agent: agent(c, s), Verify: "./check.sh"}).ID
	checkACP(t, s, c, s.env.WaitTask(id, patience))
}

// The gateway is killed under such an agent: its session is loaded again.
func TestGeminiLoadsItsSession(t *testing.T) {
	resumes(t, harnessCases()[3], acpGemini, checkACP)
}

func TestOpencodeLoadsItsSession(t *testing.T) {
	resumes(t, harnessCases()[2], acpOpencode, checkACP)
}

// Gemini and opencode ask by ACP.
func TestOpencodeAndGeminiAsk(t *testing.T) { asksWith(t, harnessCases()[2:]...) }
