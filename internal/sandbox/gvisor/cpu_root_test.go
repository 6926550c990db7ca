//go:build root

package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The limit of the processor holds a command back and does not end it.
func TestProcessorIsThrottled(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id := sandboxtest.Create(t, d, sandbox.Spec{Limits: task.Limits{MilliCPU: 100}}).ID
	if _, err := d.Start(sandboxtest.Context(t), id, sandbox.Command{ID: "busy", Argv: []string{"sh", "-c", "while :; do :; done"}}); err != nil {
		t.Fatal(err)
	}
	throttled := func() bool {
		for _, dir := range d.cgroups.folders(id) {
			text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if name, n, _ := strings.Cut(strings.TrimSpace(line), " "); name == "nr_throttled" && len(n) > 1 { // Ten times and more.
					return true
				}
			}
		}
		return false
	}
	sandboxtest.Eventually(t, "it is throttled", throttled)
	list, err := d.Inspect(sandboxtest.Context(t), id, "busy")
	if err != nil || len(list) != 1 || list[0].Phase != sandbox.CommandRunning || list[0].Reason != "" {
		t.Errorf("%+v, %v", list, err)
	}
}
