package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Use is one connection asked for. Exactly one of Name and Address is set.
type Use struct {
	Name    string // the name, as the sandbox asked for it
	Address string // the literal IP address, when no name was asked for
	Port    uint16
}

// Decide answers one use of a grant. The answer is allowed only when a rule
// names exactly this host and port; everything else, the zero grant and a use
// that names both or neither of name and address included, is denied.
func Decide(grant task.Grant, use Use) task.Decision {
	denied := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}
	host, ok := use.host()
	if !ok || use.Port == 0 {
		return denied
	}
	for _, rule := range grant.Rules {
		if ruleHost(rule.Host) == host && slices.Contains(rule.Ports, use.Port) {
			return task.Decision{Verdict: task.Allowed, Rule: rule.ID, Private: rule.Private}
		}
	}
	return denied
}

// host is the canonical form of what the use names.
func (u Use) host() (string, bool) {
	switch {
	case u.Name != "" && u.Address == "":
		return canonicalName(u.Name), true
	case u.Address != "" && u.Name == "":
		addr, err := netip.ParseAddr(u.Address)
		if err != nil || addr.Zone() != "" {
			return "", false
		}
		return addr.Unmap().String(), true
	}
	return "", false
}

// ruleHost is the canonical form of a rule's host: addresses compare as
// addresses, so that another spelling of one is no other host.
func ruleHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return canonicalName(host)
}

func canonicalName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
