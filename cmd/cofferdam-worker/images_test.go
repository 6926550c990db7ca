package main

import (
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
