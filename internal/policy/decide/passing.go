package decide

import (
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Passing is the rule under which an unknown connection would pass, by what its
// first bytes are: "tls", "http", anything else, or empty where nobody looked.
// False: it is denied, whatever a person says. The rule lends nothing and opens
// no private address.
func Passing(u task.Unknown, use Use, seen string) (task.Rule, bool) {
	host, ok := use.host()
	if !ok || use.Port == 0 || u.Mode != task.UnknownAsk && u.Mode != task.UnknownLog {
		return task.Rule{}, false
	}
	var protocols []string
	switch seen {
	case task.ProtocolTLS:
		protocols = []string{task.ProtocolTLS, task.ProtocolHTTP}
	case task.ProtocolHTTP:
		protocols = []string{task.ProtocolHTTP}
	case "":
		protocols = []string{"", task.ProtocolHTTP}
	default:
		protocols = []string{task.ProtocolTCP}
	}
	for _, protocol := range protocols {
		rule := task.Rule{Host: host, Ports: []uint16{use.Port}, Protocol: protocol}
		if u.Inspect && protocol != task.ProtocolHTTP {
			continue
		}
		if !slices.ContainsFunc(u.Within, func(bounds []task.Rule) bool {
			_, ok := Within(rule, bounds)
			return !ok
		}) {
			return rule, true
		}
	}
	return task.Rule{}, false
}
