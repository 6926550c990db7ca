package history

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

func TestPrint(t *testing.T) {
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.Add(3 * time.Second)
	once := []api.StageRun{{Attempt: 1, Round: 1, Stage: "setup", State: "succeeded"}}
	lost := api.StageRun{Attempt: 1, Round: 1, Stage: "verify", State: "failed", Reason: "infra.sandbox_lost", Text: "its kernel\x1b[2J died", Sandbox: "sb-a", StartedAt: &from, EndedAt: &to}
	again := api.StageRun{Attempt: 1, Round: 2, Stage: "verify", State: "succeeded", Sandbox: "sb-b"}
	for _, c := range []struct {
		name string
		task api.Task
		want []string
	}{
		{"nothing twice", api.Task{History: once}, nil},
		{"verify twice", api.Task{History: append(once, lost, again)}, []string{"ROUND", "infra.sandbox_lost", `its kernel\x1b[2J died`, "sb-b", "3"}},
		{"second attempt", api.Task{History: []api.StageRun{{Attempt: 2, Round: 1, Stage: "provision", State: "running"}}}, []string{"ATTEMPT", "provision"}},
		{"narrowed", api.Task{Narrowed: []string{"line 3: \x1b]0;x\a not yours"}}, []string{"NOT GIVEN", `line 3: \x1b]0;x\x07 not yours`}},
	} {
		var out strings.Builder
		if err := Print(&out, c.task); err != nil {
			t.Fatal(err)
		}
		if len(c.want) == 0 && out.Len() > 0 {
			t.Errorf("%s: prints %q", c.name, out.String())
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: lacks %q:\n%s", c.name, want, out.String())
			}
		}
	}
}
