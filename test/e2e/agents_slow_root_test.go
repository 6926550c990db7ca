//go:build root && slow

package e2e

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/agent/gemini"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
)

// The slower two of the harnesses.
func TestOpencodeAndGemini(t *testing.T) { mendWith(t, harnessCases()[2:]...) }

// A real agent that speaks the Agent Client Protocol is run by its command line.
func TestGeminiSpeaksACP(t *testing.T) {
	c := harnessCases()[3]
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, c)
	agent := c.agent(s)
	agent.Name, agent.Version, agent.Provider = "acp", "gemini", "google"
	agent.Argv = []string{"sh", "-c", `mkdir -p "$HOME/.gemini" && cat > "$HOME/.gemini/settings.json" <<'END'
` + gemini.Settings + `END
GEMINI_CLI_NO_RELAUNCH=1 GEMINI_CLI_TRUST_WORKSPACE=true exec node ` + catalog.Program("gemini") + ` -m gemini-2.5-pro --skip-trust --acp`}
	id := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: bundle(t, s.env, small(t)), Agent: agent, Verify: "./check.sh"}).ID
	got := s.env.WaitTask(id, patience)
	must(t, s.env, got, api.Succeeded, "")
	for _, kind := range []string{"call", "permission", "result", "text", "end"} {
		if !slices.Contains(kinds(agentEvents(t, s.env, id)), kind) {
			t.Errorf("no event of type %s", kind)
		}
	}
	sawOnlyTheRealKey(t, s)
}
