// Package ending reads when a rule of a policy file ends: at a moment, or a time
// after its stage began.
package ending

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// Most is the longest that a rule may be said to last.
const Most = 30 * 24 * time.Hour

// Parse reads a node. wrong is told what is wrong with it.
func Parse(n *yaml.Node, path string, wrong func(n *yaml.Node, path, format string, args ...any)) (*time.Time, time.Duration) {
	if n.Kind == yaml.ScalarNode {
		if at, err := time.Parse(time.RFC3339, n.Value); err == nil && at.Year() > 2000 {
			at = at.UTC()
			return &at, 0
		}
		if d, err := time.ParseDuration(n.Value); err == nil && d >= time.Second && d <= Most {
			return nil, d
		}
	}
	wrong(n, path, "%q is not when a rule ends; write a moment, such as \"2026-12-31T18:00:00Z\" in quotes, or a time from 1s to 720h after the stage begins, such as 20m", n.Value)
	return nil, 0
}
