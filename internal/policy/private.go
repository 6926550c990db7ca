package policy

import (
	"slices"
	"strings"
)

// Private says whether the operator's layer opens private addresses of a host at
// a port. A layer that can't be read opens none.
func Private(operator, host string, port uint16) bool {
	f, err := parseOperator(operator)
	return err == nil && slices.ContainsFunc(f.private, func(rule lined) bool {
		return strings.EqualFold(rule.Host, host) && slices.Contains(rule.Ports, port)
	})
}
