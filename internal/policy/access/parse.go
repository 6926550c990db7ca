package access

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxURL bounds an address.
const maxURL = 1024

// Parse reads what a layer says of access. Faults are told by their place.
func Parse(n *yaml.Node, path string, fault func(n *yaml.Node, path, format string, args ...any)) Said {
	said := Said{Line: n.Line}
	each(n, path, fault, "mode, gateway", func(key string, v *yaml.Node, at string) bool {
		switch key {
		case "mode":
			if said.Mode = v.Value; v.Kind != yaml.ScalarNode || v.Value != task.ModelDirect && v.Value != task.ModelGateway && v.Value != task.ModelAuto {
				fault(v, at, "%.40q is none of direct, gateway and auto", v.Value)
			}
		case "gateway":
			said.Gateway = gateway(v, at, fault)
		default:
			return false
		}
		return true
	})
	return said
}

func gateway(n *yaml.Node, path string, fault func(n *yaml.Node, path, format string, args ...any)) Gateway {
	g := Gateway{URLs: map[string]string{}}
	var names []string
	for _, p := range task.Providers() {
		names = append(names, p.Name)
	}
	each(n, path, fault, "credential, "+strings.Join(names, ", "), func(key string, v *yaml.Node, at string) bool {
		switch {
		case v.Kind != yaml.ScalarNode || v.Value == "" || len(v.Value) > maxURL:
			fault(v, at, "must be a text of 1 to %d bytes", maxURL)
		case key == "credential":
			if g.Credential = v.Value; !IsName(v.Value) {
				fault(v, at, "%.80q is not the name of a credential; `cofferdam credential ls` shows yours", v.Value)
			}
		case slices.Contains(names, key):
			if _, _, err := Endpoint(at, v.Value); err != nil || strings.ContainsAny(v.Value, "?# \"\\") {
				fault(v, at, "%.80q must be an https URL: where the gateway speaks as %s does", v.Value, key)
			}
			g.URLs[key] = v.Value
		}
		return key == "credential" || slices.Contains(names, key)
	})
	if g.Credential == "" || len(g.URLs) == 0 {
		fault(n, path, "needs the credential with its key, and where it speaks as whom: one of %s", strings.Join(names, ", "))
	}
	return g
}

// each gives the fields of a mapping, each once.
func each(n *yaml.Node, path string, fault func(n *yaml.Node, path, format string, args ...any), known string, take func(key string, v *yaml.Node, at string) bool) {
	if n.Kind != yaml.MappingNode {
		fault(n, path, "must be a mapping of %s", known)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		at := path + "." + key.Value
		switch {
		case seen[key.Value]:
			fault(key, at, "stands here twice")
		case key.Kind != yaml.ScalarNode || !take(key.Value, v, at):
			fault(key, at, "unknown field; known here: %s", known)
		}
		seen[key.Value] = true
	}
}
