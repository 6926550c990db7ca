package loop

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
)

//go:embed system.md
var system string

// systemPrompt says where the model works. Nothing relies on its being obeyed.
func systemPrompt() string { return system }

// userPrompt is the task and where it stands.
func userPrompt(job stage.LoopJob) string {
	var b strings.Builder
	if job.Repo != "" {
		fmt.Fprintf(&b, "Repository: %s\n", clean(job.Repo))
	}
	if job.Commit != "" {
		fmt.Fprintf(&b, "Commit: %s\n", clean(job.Commit))
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	if job.Prompt == "" {
		b.WriteString("Look at the repository, and mend what is broken.")
	}
	b.WriteString(clean(job.Prompt))
	return b.String()
}
