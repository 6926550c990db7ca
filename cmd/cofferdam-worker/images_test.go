package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor"
)

func TestImagesDir(t *testing.T) {
	for flag, want := range map[string]string{"": "/data/worker/images", "off": "", "/shared": "/shared"} {
		if got := imagesDir(flag, "/data/worker"); got != want {
			t.Errorf("--images %q: %q, want %q", flag, got, want)
		}
	}
}

func TestImagesOffIsTold(t *testing.T) {
	checks := imageChecks(&gvisor.Driver{})
	if len(checks) != 1 || checks[0].Outcome != link.CheckWarn || !strings.Contains(checks[0].Text, "--images off") {
		t.Errorf("%+v", checks)
	}
}

// What does not work inside is told, and where more of it is.
func TestGapsAreTold(t *testing.T) {
	check := gapsCheck()
	if check.Outcome != link.CheckOK || !strings.Contains(check.Text, "Docker") {
		t.Errorf("%+v", check)
	}
	text, err := os.ReadFile("../../docs/life-of-a-task.md")
	if err != nil || !strings.Contains(string(text), "\n## 8. What works inside\n") {
		t.Errorf("the page that is named has no such chapter: %v", err)
	}
}
